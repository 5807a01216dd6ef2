# Completion of mesh-host, made by the program that is installed.
source <(mesh-host completion bash)
