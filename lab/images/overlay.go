package images

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where a qcow2 file names the file under it.
// https://gitlab.com/qemu-project/qemu/-/blob/master/docs/interop/qcow2.txt, "Header".
const (
	qcow2Magic  = 0x514649fb
	backingSize = 1023 // "must not be longer than 1023 bytes"
)

// Backing returns the name of the file under a qcow2 disk, "" where there is
// none.
func Backing(disk io.ReaderAt) (string, error) {
	var header struct {
		Magic, Version uint32
		Offset         uint64
		Size           uint32
	}
	if err := binary.Read(io.NewSectionReader(disk, 0, 20), binary.BigEndian, &header); err != nil {
		return "", fmt.Errorf("read header of disk: %v", err)
	}
	if header.Magic != qcow2Magic || header.Version < 2 || header.Version > 3 {
		return "", errors.New("read header of disk: it is not a qcow2 file of version 2 or 3")
	}
	if header.Offset == 0 {
		return "", nil
	}
	if header.Size > backingSize || header.Offset > 1<<30 {
		return "", errors.New("read header of disk: the name of the file under it is out of range")
	}
	name := make([]byte, header.Size)
	if _, err := disk.ReadAt(name, int64(header.Offset)); err != nil {
		return "", fmt.Errorf("read name of the file under the disk: %v", err)
	}
	return string(name), nil
}

// Users lists the directories right below dir, by name, that hold a qcow2 disk
// made on top of the image. A dir that does not exist has none.
func Users(dir string, image Image) ([]string, error) {
	var users []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone while we looked
		}
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".qcow2" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		under, err := Backing(f)
		if err != nil {
			return fmt.Errorf("%s: %v", path, err)
		}
		rest, _ := strings.CutPrefix(path, dir+"/")
		if user, _, _ := strings.Cut(rest, "/"); under == image.Disk && !slices.Contains(users, user) {
			users = append(users, user)
		}
		return nil
	})
	return users, err
}
