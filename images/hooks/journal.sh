# The journal survives a power cut, and never fills the disk.
mkdir -p /etc/systemd/journald.conf.d /var/log/journal
cat > /etc/systemd/journald.conf.d/mesh-lab.conf <<'END'
[Journal]
Storage=persistent
SystemMaxUse=64M
SystemMaxFileSize=8M
END

# The agent tells of every question that it is asked; each line costs an emulated
# machine more than the answer.
mkdir -p /etc/systemd/system/qemu-guest-agent.service.d
cat > /etc/systemd/system/qemu-guest-agent.service.d/quiet.conf <<'END'
[Service]
LogLevelMax=notice
END
