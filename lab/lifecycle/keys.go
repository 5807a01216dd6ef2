package lifecycle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"mesh/lab/guest"
)

// SSH is where the keys of a scenario are. They are made by its raise, readable
// by root only, and never part of a record or a message.
type SSH struct {
	Key        string `json:"key"`         // private key of whoever may log in as root on every machine
	KnownHosts string `json:"known_hosts"` // of ssh(1); a machine is known by its name in the scenario
}

func sshFiles(directory string) SSH {
	return SSH{
		Key:        filepath.Join(directory, "ssh", "id_ed25519"),
		KnownHosts: filepath.Join(directory, "ssh", "known_hosts"),
	}
}

// hostKey is the file of a machine's private host key.
func (s SSH) hostKey(machine string) string {
	return filepath.Join(filepath.Dir(s.Key), machine+"_host_ed25519_key")
}

// keys makes the scenario's SSH keys anew, the file that names them all last.
func (r *raise) keys() error {
	s := r.plan.SSH
	if err := os.MkdirAll(filepath.Dir(s.Key), 0o700); err != nil {
		return fmt.Errorf("make the directory of SSH keys: %w", err)
	}
	if _, err := os.Stat(s.KnownHosts); err == nil {
		return nil // machines may have them already
	}
	_, err := newKey(s.Key, "root of scenario "+r.plan.Name)
	if err != nil {
		return err
	}
	var known bytes.Buffer
	for _, m := range r.plan.Machines {
		public, err := newKey(s.hostKey(m.Name), m.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&known, "%s %s", m.Name, ssh.MarshalAuthorizedKey(public))
	}
	return writePrivate(s.KnownHosts, known.Bytes())
}

// newKey makes a key pair, the private one in file as OpenSSH has it.
func newKey(file, comment string) (ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return nil, fmt.Errorf("make an SSH key: %w", err)
	}
	if err := writePrivate(file, pem.EncodeToMemory(block)); err != nil {
		return nil, err
	}
	return ssh.NewPublicKey(public)
}

// writePrivate makes a file anew that only root may read.
func writePrivate(file string, content []byte) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// sshIdentity are the files with which a machine knows itself, and whom it lets in.
func sshIdentity(s SSH, machine string) ([]guest.File, error) {
	host, err := os.ReadFile(s.hostKey(machine))
	if err != nil {
		return nil, fmt.Errorf("read SSH host key: %w", err)
	}
	client, err := os.ReadFile(s.Key)
	if err != nil {
		return nil, fmt.Errorf("read SSH key: %w", err)
	}
	hostLine, err := publicLine(host)
	if err != nil {
		return nil, err
	}
	clientLine, err := publicLine(client)
	if err != nil {
		return nil, err
	}
	return []guest.File{
		{Path: "/etc/ssh/ssh_host_ed25519_key", Mode: 0o600, Content: host},
		{Path: "/etc/ssh/ssh_host_ed25519_key.pub", Mode: 0o644, Content: hostLine},
		{Path: "/root/.ssh/authorized_keys", Mode: 0o600, Content: clientLine},
	}, nil
}

// publicLine is the public half of a private key, as authorized_keys has it.
func publicLine(private []byte) ([]byte, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("read SSH key: %s", strings.TrimPrefix(err.Error(), "ssh: "))
	}
	return ssh.MarshalAuthorizedKey(signer.PublicKey()), nil
}
