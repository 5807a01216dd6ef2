// Package declaration is the contract between plane and host: what a node shall
// hold, in which order, and how that statement is written, digested and signed.
//
// It is pure: it reads no file, no clock and no network. host, plane and tests
// may import it. A document is read strictly (see Parse): what is not understood
// is refused as a whole, never skipped.
package declaration

// Format is the version of the document that this build writes, and the newest
// it reads. History:
//
//	1  2026-11-30  directory, file, package, service
const Format = 1

// Limits on what Parse accepts. They bound work on bytes that came from
// elsewhere; they are far above what a real mesh declares.
const (
	MaxBytes     = 32 << 20 // one document
	MaxResources = 50_000   // resources in one document
	MaxContent   = 8 << 20  // content of one file
)

// Kind names what a resource is. There are no others than these constants;
// "container" is reserved and refused until the host can apply it.
type Kind string

// The kinds of format 1, in the order of the vocabulary.
const (
	KindDirectory Kind = "directory"
	KindFile      Kind = "file"
	KindPackage   Kind = "package"
	KindService   Kind = "service"
)

// Kinds lists every kind this build knows; the profile reports it to the plane.
func Kinds() []Kind { return []Kind{KindDirectory, KindFile, KindPackage, KindService} }

// Declaration is an ordered list of owned resources for one node. The order is
// the order of applying; removal goes the other way.
type Declaration struct {
	Format     int        `json:"format"`
	Mesh       string     `json:"mesh"`       // name of the mesh
	Node       string     `json:"node"`       // name of the node it is for
	Epoch      uint64     `json:"epoch"`      // raised by a restore of the plane; 1 or more
	Generation uint64     `json:"generation"` // rises within an epoch; 1 or more
	Resources  []Resource `json:"resources"`  // may be empty: then all that is owned goes
}

// Resource is one owned thing. Exactly one of the kind fields is set.
type Resource struct {
	// ID names the resource within the mesh's vocabulary, "module/name"
	// ("plane/config"). Unique in a declaration; [a-z0-9-] parts joined by "/".
	ID string `json:"id"`

	Directory *Directory `json:"directory,omitempty"`
	File      *File      `json:"file,omitempty"`
	Package   *Package   `json:"package,omitempty"`
	Service   *Service   `json:"service,omitempty"`
}

// Directory is a directory at an absolute, clean path. Its content is not owned.
type Directory struct {
	Path  string `json:"path"`
	Owner string `json:"owner,omitempty"` // user name; empty means root
	Group string `json:"group,omitempty"` // group name; empty means root
	Mode  string `json:"mode,omitempty"`  // four octal digits; empty means 0755
}

// File is a regular file with its whole content.
type File struct {
	Path    string `json:"path"`
	Owner   string `json:"owner,omitempty"` // user name; empty means root
	Group   string `json:"group,omitempty"` // group name; empty means root
	Mode    string `json:"mode,omitempty"`  // four octal digits; empty means 0644
	Content string `json:"content"`         // UTF-8, at most MaxContent bytes
}

// Package is a Debian package that shall be installed.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // exact Debian version; empty means any installed one will do
}

// Service is a systemd unit.
type Service struct {
	Unit    string `json:"unit"`              // with its suffix: "nginx.service"
	State   string `json:"state,omitempty"`   // "running" (also when empty) or "stopped"
	Enabled *bool  `json:"enabled,omitempty"` // nil means true
	// RestartOn lists IDs of resources declared before this one; when one of
	// them changes, the unit is restarted, once, at this place in the order.
	RestartOn []string `json:"restart_on,omitempty"`
}
