# Completion of mesh-plane, made by the program that is installed.
source <(mesh-plane completion bash)
