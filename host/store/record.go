package store

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"mesh/host/declaration"
)

// Key is the place a resource occupies. Ownership belongs to the place and not
// to the resource's ID, so a resource may be renamed, or pass from a bundle to
// the plane, without a removal.
type Key struct {
	Kind  declaration.Kind `json:"kind"`
	Where string           `json:"where"` // path, package name, unit or container
}

func (k Key) String() string { return string(k.Kind) + " " + k.Where }

// State is what is, was or shall be at one place. The zero value means nothing
// is there. States are compared with ==, or by the rules of their kind.
type State struct {
	Type       string `json:"type,omitempty"`       // "file", "directory", "package", "service", "container", or what else is in the way
	Digest     string `json:"digest,omitempty"`     // file, container's unit file: SHA-256 of its content, hex
	UID        uint32 `json:"uid,omitzero"`         // file, directory
	GID        uint32 `json:"gid,omitzero"`         // file, directory
	Mode       uint32 `json:"mode,omitzero"`        // file, directory: permission, set-id and sticky bits
	Version    string `json:"version,omitempty"`    // package; container: names the unit file that the one that runs was made of
	Image      string `json:"image,omitempty"`      // container: digest of the image that runs, "sha256:…"
	Status     string `json:"status,omitempty"`     // package: dpkg's word for it; service, container's service: its ActiveState
	Enabled    string `json:"enabled,omitempty"`    // service: its UnitFileState
	Invocation string `json:"invocation,omitempty"` // service, container: names one run of it, so that a restart can be recognised
	Boot       string `json:"boot,omitempty"`       // service, container: the boot in which it was seen
}

// Absent says whether nothing is there.
func (s State) Absent() bool { return s.Type == "" }

// Source says where a declaration came from.
type Source string

// The sources of a declaration.
const (
	SourceBundle Source = "bundle" // the operator handed it over; epoch and generation are 0
	SourcePlane  Source = "plane"  // signed by the plane
)

// Act says what an intent is about to do.
type Act string

// Every act an intent can announce.
const (
	ActApply   Act = "apply"   // bring the place to Target
	ActRestart Act = "restart" // start the unit anew
	ActReload  Act = "reload"  // make the unit read its configuration again
	ActRemove  Act = "remove"  // undo what made us the owner
)

// Record is one entry of the journal; the types of this file are its kinds.
type Record interface{ kind() uint16 }

// Accepted is the declaration the host follows.
type Accepted struct {
	Source     Source    `json:"source"`
	Mesh       string    `json:"mesh,omitempty"` // empty for a bundle
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Digest     string    `json:"digest"`
	Time       time.Time `json:"time"`
	Final      bool      `json:"final,omitzero"` // the last one of its mesh; anything may follow it
	Document   []byte    `json:"document"`       // the last member. As received: signed bytes, or the bundle; nil where it was not read yet, see Received

	// Record is not stored: what holds Document, where Read did not read that; see
	// Received.
	Record []byte `json:"-"`

	// Resources is not stored: what Document declares, where it was just read; nil
	// means that it has to be read.
	Resources []declaration.Resource `json:"-"`
}

// HasDocument says whether a is there, and its document with it, or what that declares.
func (a *Accepted) HasDocument() bool {
	return a != nil && (a.Document != nil || a.Record != nil || a.Resources != nil)
}

// Received is the document, as it was received. Nobody may write to it.
func (a Accepted) Received() ([]byte, error) {
	if a.Document != nil || a.Record == nil {
		return a.Document, nil
	}
	var whole Accepted
	if err := json.Unmarshal(a.Record, &whole, asText); err != nil {
		return nil, fmt.Errorf("read the record of what was accepted: %v", err)
	}
	return whole.Document, nil
}

// Intent says what is about to be done at a place. It is durable before the
// machine is touched, and open until Owned, Forgotten or Dropped follows.
type Intent struct {
	Key
	ID         string    `json:"id"`
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Act        Act       `json:"act"`
	Origin     State     `json:"origin"`         // what was there before the host ever touched the place
	Before     State     `json:"before"`         // what is there now
	Target     State     `json:"target"`         // what shall be there
	Owes       []string  `json:"owes,omitempty"` // units that owe a restart once it is done
	Time       time.Time `json:"time"`
}

// Dropped closes an intent that came to nothing.
type Dropped struct {
	Key
	Reason string `json:"reason"`
}

// Owned says that the host holds a place, and what it made there, or what a removal
// left of that which was done in part. A resource that stood as declared before the
// host touched it has Origin equal to Made.
type Owned struct {
	Key
	ID         string    `json:"id"`
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Origin     State     `json:"origin"`
	Made       State     `json:"made"`
	Restarts   []string  `json:"restarts,omitempty"` // units to restart when it changes or goes
	Order      uint64    `json:"order"`              // rises in the order places were first owned; 0: the store sets it
	Time       time.Time `json:"time"`

	// Doubtful is not stored: the record is older than a loss, so a later one
	// that contradicted it may be gone. It is good for everything but removal.
	Doubtful bool `json:"-"`
}

// Found says whether the place stood as declared before the host touched it, so
// that giving it up leaves it as it is.
func (o Owned) Found() bool { return o.Origin == o.Made }

// Forgotten ends the ownership of a place. Left is empty when what was there is
// gone; otherwise it says why it was left behind, and the place stays listed
// until it is owned again.
type Forgotten struct {
	Key
	ID         string    `json:"id"`
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Left       string    `json:"left,omitempty"`
	Time       time.Time `json:"time"`
}

// Owed says that a unit owes a restart because a resource changed. There is one
// debt for each unit and cause, and the oldest stands.
type Owed struct {
	Unit       string    `json:"unit"`
	ID         string    `json:"id"` // of the resource that changed
	Because    Key       `json:"because"`
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"` // since which the restart is owed
	Time       time.Time `json:"time"`
}

// Settled pays every debt of a unit.
type Settled struct {
	Unit   string    `json:"unit"`
	Reason string    `json:"reason"` // "restarted", "started", "stopped", "not declared any more"
	Time   time.Time `json:"time"`
}

// Loss says that a part of the store could not be read. It stays listed until
// the store is told that somebody knows.
type Loss struct {
	File   string    `json:"file"`            // "journal", "snapshot", or "store" for both
	What   string    `json:"what"`            // one sentence
	Aside  string    `json:"aside,omitempty"` // the damaged file was kept under this name
	Grave  bool      `json:"grave"`           // everything recorded before is doubtful
	Time   time.Time `json:"time"`
	Before uint64    `json:"before"` // records numbered below are the doubtful ones
}

// Acknowledged ends the listing of every loss and the doubt they cast.
type Acknowledged struct {
	Time time.Time `json:"time"`
}

// Copied says that what somebody else wrote at a place was kept before the host
// replaced it: the content lies among the host's, under its digest.
type Copied struct {
	Key
	Digest string    `json:"digest"`
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time"`
}

// Numbers of the kinds on disk. A number is never given a second meaning; a
// reader keeps records of kinds it does not know as they are.
//
//	1  2026-11-30  all below up to acknowledged
//	1  2026-11-30  copied; a reader that does not know it keeps it as it is
const (
	kindHeader uint16 = iota + 1
	kindAccepted
	kindIntent
	kindDropped
	kindOwned
	kindForgotten
	kindOwed
	kindSettled
	kindLoss
	kindAcknowledged
	kindCopied
)

func (Accepted) kind() uint16     { return kindAccepted }
func (Intent) kind() uint16       { return kindIntent }
func (Dropped) kind() uint16      { return kindDropped }
func (Owned) kind() uint16        { return kindOwned }
func (Forgotten) kind() uint16    { return kindForgotten }
func (Owed) kind() uint16         { return kindOwed }
func (Settled) kind() uint16      { return kindSettled }
func (Loss) kind() uint16         { return kindLoss }
func (Acknowledged) kind() uint16 { return kindAcknowledged }
func (Copied) kind() uint16       { return kindCopied }
