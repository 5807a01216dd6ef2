# Nothing of one machine's identity is in the image: the lab gives the machine
# id and the host name on the kernel's command line. An empty file lets systemd
# write the id there; a missing one would be a first boot, with presets applied.
: > /etc/machine-id
rm -f /etc/hostname /var/lib/dbus/machine-id /var/lib/systemd/random-seed

# The kernel mounts the only file system as it is to be.
rm -f /etc/fstab

# /etc and /var are newer than /usr: nothing is left to be done at a first boot.
touch /etc/.updated /var/.updated
