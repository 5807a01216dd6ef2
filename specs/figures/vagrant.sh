#!/bin/bash
# The peer of `make bench-lab`: raises machines from the lab's own image with
# vagrant and vagrant-libvirt, and prints the seconds from `vagrant up` until all
# of them answered by SSH. Everything of it stays in namespaces of this run:
# its own libvirtd with its own files, its management network, its processes.
#
#	vagrant.sh MACHINES IMAGE-DISK KERNEL INITRD CMDLINE WORK-DIRECTORY
#
# WORK-DIRECTORY keeps the box between runs; the caller removes it. Machines are
# emulated, with memory and processor as the lab's are.
set -euo pipefail
machines=$1 disk=$2 kernel=$3 initrd=$4 cmdline=$5 work=$6

# The box is the lab's image with a key to log in by, and host keys.
box() {
	[ -e "$work/box/box.img" ] && return
	rm -rf "$work/box" "$work/key" "$work/key.pub"
	mkdir -p "$work/box" "$work/root"
	ssh-keygen -q -t ed25519 -N '' -f "$work/key"
	qemu-img convert -O raw "$disk" "$work/raw"
	mount -o loop "$work/raw" "$work/root"
	trap 'umount "$work/root"' EXIT
	install -d -m 700 "$work/root/root/.ssh"
	install -m 600 "$work/key.pub" "$work/root/root/.ssh/authorized_keys"
	: >"$work/root/etc/fstab"
	rm -f "$work"/root/etc/ssh/ssh_host_*
	ssh-keygen -q -t ed25519 -N '' -f "$work/root/etc/ssh/ssh_host_ed25519_key"
	umount "$work/root"
	trap - EXIT
	qemu-img convert -O qcow2 "$work/raw" "$work/box/box.img"
	rm "$work/raw"
	printf '{"provider":"libvirt","format":"qcow2","virtual_size":%d}\n' \
		"$(($(qemu-img info --output=json "$disk" | grep -o '"virtual-size": [0-9]*' | head -1 | grep -o '[0-9]*') >> 30))" >"$work/box/metadata.json"
	: >"$work/box/Vagrantfile"
	tar -C "$work/box" -czf "$work/mesh.box" metadata.json Vagrantfile box.img
}

if [ "${7:-}" != inside ]; then
	mkdir -p "$work"
	box
	exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@" inside
fi

# A libvirt of its own, and terminals that QEMU may open, which is not root.
ip link set lo up
mount -t devpts -o newinstance,mode=620,ptmxmode=666 devpts /dev/pts
for dir in /run/libvirt /var/log/libvirt /var/cache/libvirt; do
	mkdir -p "$dir"
	mount -t tmpfs tmpfs "$dir"
done
mkdir -p "$work/lib" "$work/lib/images" "$work/etc"
[ -e "$work/etc/libvirtd.conf" ] || cp -a /etc/libvirt/. "$work/etc"
rm -rf "$work/etc/qemu/networks" && mkdir -p "$work/etc/qemu/networks"
mount --bind "$work/etc" /etc/libvirt
mount --bind "$work/lib" /var/lib/libvirt
chmod 711 "$work" "$work/lib" "$work/lib/images"
virtlogd >"$work/virtlogd.log" 2>&1 &
libvirtd >"$work/libvirtd.log" 2>&1 &
until virsh -q list >/dev/null 2>&1; do sleep 0.2; done

export VAGRANT_HOME=$work/home VAGRANT_CHECKPOINT_DISABLE=1 VAGRANT_DEFAULT_PROVIDER=libvirt HOME=$work
mkdir -p "$work/project"
cd "$work/project"
rm -rf .vagrant
cat >Vagrantfile <<END
Vagrant.configure("2") do |config|
  config.vm.box = "mesh"
  config.vm.synced_folder ".", "/vagrant", disabled: true
  config.vm.boot_timeout = 540
  config.ssh.username = "root"
  config.ssh.private_key_path = "$work/key"
  config.ssh.insert_key = false
  config.ssh.sudo_command = "%c"
  config.vm.provider :libvirt do |l|
    l.driver = "qemu"
    l.cpu_mode = "custom"
    l.cpu_model = "Nehalem"
    l.machine_type = "q35"
    l.memory = 512
    l.cpus = 1
    l.kernel = "$kernel"
    l.initrd = "$initrd"
    l.cmd_line = "$cmdline"
    l.disk_driver :cache => "unsafe"
    l.graphics_type = "none"
    l.video_type = "none"
  end
  (1..$machines).each { |i| config.vm.define "m#{i}" }
end
END
[ -d "$VAGRANT_HOME/boxes/mesh" ] || vagrant box add --name mesh "$work/mesh.box" >"$work/box.log" 2>&1
begun=$(date +%s.%N)
vagrant up --no-tty >"$work/up.log" 2>&1
for i in $(seq "$machines"); do vagrant ssh "m$i" -c true >>"$work/up.log" 2>&1; done
ended=$(date +%s.%N)
vagrant destroy -f >>"$work/up.log" 2>&1 || true
awk "BEGIN { printf \"%.1f\\n\", $ended - $begun }"
