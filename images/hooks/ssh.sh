# SSH is there for whoever holds the scenario's key, and costs nothing until then:
# systemd listens, and starts one server for each connection. Host keys are each
# machine's own, placed by the lab.
rm -f /etc/ssh/ssh_host_*
cat > /etc/ssh/sshd_config.d/mesh-lab.conf <<'END'
HostKey /etc/ssh/ssh_host_ed25519_key
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
END
systemctl disable ssh.service
systemctl enable ssh.socket
mkdir -p -m 0700 /root/.ssh
