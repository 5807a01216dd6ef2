package verify_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"mesh/lab/verify"
	"mesh/lab/volatile"
)

// TestMain is a verification amid its power cut when its arguments say so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve disks" {
		serveDisks()
		return
	}
	os.Exit(m.Run())
}

// serveDisks mounts disks in a directory of this process's, says where, and does
// not end.
func serveDisks() {
	name, err := verify.Prefix()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		panic(err)
	}
	s := volatile.NewServer(volatile.Config{
		Directory: dir, Mount: filepath.Join(dir, verify.DiskMount), Control: filepath.Join(dir, "control"),
	}, nil)
	go func() {
		<-s.Ready()
		fmt.Println(dir)
	}()
	panic(s.Run(context.Background()))
}
