# Under emulation a boot is paid for process by process, so a machine of the lab
# does not start what it has no use for. Nothing here changes what a machine can
# do once somebody wants it: units are masked, drivers can be loaded by name.

# Timers that fetch, trim and back up.
systemctl mask \
	apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service \
	dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer

# File systems for debugging, for configuring the kernel and for old programs,
# each a mount and some also a modprobe; modules for a screen; settings given in
# other ways; mounting anew what is mounted as it is to be.
systemctl mask \
	dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount run-lock.mount \
	sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	modprobe@configfs.service modprobe@drm.service modprobe@fuse.service \
	systemd-network-generator.service systemd-networkd-persistent-storage.service \
	systemd-pstore.service systemd-remount-fs.service systemd-udev-load-credentials.service

# An empty list of modules; the service that reads such lists has nothing to do
# until there is another.
rm -f /etc/modules-load.d/modules.conf

# Generators for disks, updates and keys that a machine has not.
mkdir -p /etc/systemd/system-generators
for name in bless-boot debug gpt-auto hibernate-resume rc-local run ssh system-update tpm2; do
	ln -s /dev/null /etc/systemd/system-generators/systemd-$name-generator
done

# Devices that were there before udev are announced once more to be set up; of
# those that need no setting up there are hundreds.
mkdir -p /etc/systemd/system/systemd-udev-trigger.service.d
cat > /etc/systemd/system/systemd-udev-trigger.service.d/few.conf <<'END'
[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --prioritized-subsystem=block,net,virtio-ports \
	--subsystem-nomatch=acpi --subsystem-nomatch=bdi --subsystem-nomatch=clockevents \
	--subsystem-nomatch=clocksource --subsystem-nomatch=cpu --subsystem-nomatch=event_source \
	--subsystem-nomatch=machinecheck --subsystem-nomatch=memory --subsystem-nomatch=node \
	--subsystem-nomatch=pnp --subsystem-nomatch=vc --subsystem-nomatch=workqueue
END
cat > /etc/modprobe.d/mesh-lab.conf <<'END'
# What the board has and no machine uses.
blacklist ahci
blacklist evdev
blacklist i2c_i801
blacklist lpc_ich
blacklist psmouse
blacklist serio_raw
END
