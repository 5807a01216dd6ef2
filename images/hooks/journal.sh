# The journal survives a power cut, and never fills the disk.
mkdir -p /etc/systemd/journald.conf.d /var/log/journal
cat > /etc/systemd/journald.conf.d/mesh-lab.conf <<'END'
[Journal]
Storage=persistent
SystemMaxUse=64M
SystemMaxFileSize=8M
END
