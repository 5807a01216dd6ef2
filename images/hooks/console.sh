# The serial console is the only way in beside the guest agent, and the lab
# machine's root is the only one who can reach it: root is logged in there at
# once, and its password is locked everywhere.
passwd --lock root
systemctl disable getty@tty1.service
mkdir -p /etc/systemd/system/serial-getty@ttyS0.service.d
cat > /etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf <<'END'
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear --keep-baud 115200,57600,38400,9600 %I vt220
END
: > /etc/motd
: > /etc/issue
echo LANG=C.UTF-8 > /etc/default/locale
