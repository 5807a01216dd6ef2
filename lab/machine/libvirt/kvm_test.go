package libvirt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mesh/lab/machine/libvirt"
)

func TestADeviceIsLentAndPutBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const group, other = 4242, 4343
	who := &syscall.Credential{Uid: 64055, Gid: 64055, Groups: []uint32{group}}
	tests := []struct {
		name     string
		mode     os.FileMode
		uid, gid int
		lent     string // as it is while lent
	}{
		{"root's alone", 0o600, 0, 0, "0660 0:4242"},
		{"another group's", 0o660, 0, other, "0660 0:4242"},
		{"its group's already", 0o660, 0, group, "0660 0:4242"},
		{"everybody's", 0o666, 0, 0, "0666 0:0"},
		{"its own", 0o600, 64055, 0, "0600 64055:0"},
		{"its group may only read", 0o640, 0, group, "0660 0:4242"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			device, record := filepath.Join(dir, "device"), filepath.Join(dir, "record")
			if err := os.WriteFile(device, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(device, tt.uid, tt.gid); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(device, tt.mode); err != nil {
				t.Fatal(err)
			}
			was := shown(t, device)
			open, put := libvirt.Loan(device, record)
			for range 2 { // the second finds it lent, as after a crash
				if _, err := open(who, group); err != nil {
					t.Fatal(err)
				}
				if got := shown(t, device); got != tt.lent {
					t.Errorf("lent as %s, want %s", got, tt.lent)
				}
			}
			for range 2 {
				if err := put(); err != nil {
					t.Fatal(err)
				}
				if got := shown(t, device); got != was {
					t.Errorf("put back as %s, was %s", got, was)
				}
			}
			if _, err := os.Stat(record); err == nil {
				t.Error("the record is left")
			}
		})
	}
}

func TestALoanWhoseRecordIsUnreadableIsNotGuessed(t *testing.T) {
	dir := t.TempDir()
	device, record := filepath.Join(dir, "device"), filepath.Join(dir, "record")
	for _, file := range []string{device, record} {
		if err := os.WriteFile(file, nil, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	_, put := libvirt.Loan(device, record)
	if err := put(); err == nil || !strings.Contains(err.Error(), record) || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("%v", err)
	}
	open, _ := libvirt.Loan(filepath.Join(dir, "none"), record)
	if changed, err := open(nil, 1); changed || err != nil {
		t.Errorf("no device: %v, %v", changed, err)
	}
}

func shown(t *testing.T, file string) string {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%04o %d:%d", info.Mode().Perm(), s.Uid, s.Gid)
}
