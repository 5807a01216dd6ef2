package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mesh/host/identity"
)

// Folder is a directory of small files readable by root alone. Names have no
// slash.
type Folder interface {
	// Read returns a whole file; the error matches fs.ErrNotExist when it is absent.
	Read(name string) ([]byte, error)
	// Replace durably puts data at name: the old or the new, never between.
	Replace(name string, data []byte) error
	// Remove durably takes a file away; one that is absent is no error.
	Remove(name string) error
	// Lock makes the folder if it is absent and takes a lock on the file name,
	// held until closed or the process ends; the error matches store.ErrLocked
	// when another process has it.
	Lock(name string) (io.Closer, error)
}

// Files in the identity folder: who this machine is, and the lock of whoever
// changes that.
const (
	identityName = "identity"
	identityLock = "lock"
)

// identityFormat is the version of that file. History:
//
//	1  2026-11-30  attempt, member
const identityFormat = 1

// Membership is this machine's place in a mesh.
type Membership struct {
	Mesh           string
	Node           string
	Addresses      []string // overlay addresses granted
	Plane          []netip.AddrPort
	Pins           []identity.Pin
	DeclarationKey identity.DeclarationPublicKey
	Key            identity.NodeKey
	Since          time.Time // by this machine's clock
}

// same tells whether the link would be the same one.
func (m *Membership) same(other *Membership) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.Mesh == other.Mesh && m.Node == other.Node && m.DeclarationKey == other.DeclarationKey &&
		m.Key.Public() == other.Key.Public() && slices.Equal(m.Plane, other.Plane) && slices.Equal(m.Pins, other.Pins)
}

// identityFile is the file's content.
type identityFile struct {
	Format  int      `json:"format"`
	Attempt *attempt `json:"attempt,omitempty"`
	Member  *member  `json:"member,omitempty"`
}

// attempt is an enrolment that was begun and whose answer is not known. The same
// token with the same key may be presented again.
type attempt struct {
	Key     string    `json:"key"` // identity.NodeKey.SecretText
	TokenID string    `json:"token_id"`
	Time    time.Time `json:"time"`
}

type member struct {
	Key            string                        `json:"key"` // identity.NodeKey.SecretText
	Mesh           string                        `json:"mesh"`
	Node           string                        `json:"node"`
	Addresses      []string                      `json:"addresses"`
	Plane          []netip.AddrPort              `json:"plane"`
	Pins           []identity.Pin                `json:"pins"`
	DeclarationKey identity.DeclarationPublicKey `json:"declaration_key"`
	Since          time.Time                     `json:"since"`
}

// readIdentity reads the file; the zero value when there is none.
func readIdentity(folder Folder) (identityFile, error) {
	b, err := folder.Read(identityName)
	if errors.Is(err, fs.ErrNotExist) {
		return identityFile{}, nil
	}
	if err != nil {
		return identityFile{}, fmt.Errorf("read this machine's identity: %v", err)
	}
	var f identityFile
	if err := json.Unmarshal(b, &f); err != nil {
		return identityFile{}, damaged(err)
	}
	if f.Format > identityFormat {
		return identityFile{}, fmt.Errorf("read this machine's identity: it is of format %d and this mesh-host reads up to %d: install the newer mesh-host again", f.Format, identityFormat)
	}
	if _, err := f.membership(); err != nil {
		return identityFile{}, damaged(err)
	}
	return f, nil
}

// errDamaged is matched where an identity file is there and is no identity.
var errDamaged = errors.New("this machine's identity cannot be read")

func damaged(cause error) error {
	return fmt.Errorf("%w: %v: it goes on by its own record; enrol it again with a new token", errDamaged, cause)
}

func writeIdentity(folder Folder, f identityFile) error {
	f.Format = identityFormat
	b, err := json.Marshal(f, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("write this machine's identity: %v", err)
	}
	if err := folder.Replace(identityName, append(b, '\n')); err != nil {
		return fmt.Errorf("write this machine's identity: %v", err)
	}
	return nil
}

// membership is nil when the file does not say that the machine was admitted.
func (f identityFile) membership() (*Membership, error) {
	if f.Member == nil {
		return nil, nil
	}
	key, err := identity.ParseNodeKey(f.Member.Key)
	if err != nil {
		return nil, err
	}
	if f.Member.Mesh == "" || len(f.Member.Plane) == 0 || len(f.Member.Pins) == 0 || f.Member.DeclarationKey.IsZero() {
		return nil, errors.New("a part of it is missing")
	}
	return &Membership{
		Mesh: f.Member.Mesh, Node: f.Member.Node, Addresses: f.Member.Addresses,
		Plane: f.Member.Plane, Pins: f.Member.Pins, DeclarationKey: f.Member.DeclarationKey,
		Key: key, Since: f.Member.Since,
	}, nil
}

// RecordExpected is for store.Config: a machine that was enrolled has a record.
func RecordExpected(folder Folder) func() string {
	return func() string {
		f, err := readIdentity(folder)
		switch {
		case err != nil:
			return "this machine was enrolled before"
		case f.Member != nil:
			return fmt.Sprintf("this machine is node %s of mesh %s", f.Member.Node, f.Member.Mesh)
		}
		return ""
	}
}

// ReadMembership says which mesh this machine is a member of; nil for none.
func ReadMembership(folder Folder) (*Membership, error) {
	f, err := readIdentity(folder)
	if err != nil {
		return nil, err
	}
	return f.membership()
}

// leave forgets who this machine was. What was lost of it by a crash halfway is
// forgotten the next time.
func leave(folder Folder) error {
	lock, err := folder.Lock(identityLock)
	if err != nil {
		return err
	}
	defer lock.Close()
	return folder.Remove(identityName)
}
