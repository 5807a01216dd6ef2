# The machine is always a virtio machine that boots a kernel the lab hands it,
# so its initramfs loads the disk, mounts it, and is done: no udev, no search.
mkdir -p /etc/tiny-initramfs
cat > /etc/tiny-initramfs/tiny-initramfs.conf <<'END'
MICROCODE=no
AUTO_MODULES=no
INCLUDE_MODULES="virtio_blk,ext4"
END
