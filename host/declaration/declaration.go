// Package declaration is the contract between plane and host: what a node shall
// hold, in which order, and how that statement is written, digested and signed.
//
// It is pure: it reads no file, no clock and no network. host, plane and tests
// may import it. A document is read strictly (see Parse): what is not understood
// is refused as a whole, never skipped.
package declaration

// Format is the newest version of the document that this build reads and writes;
// it reads every one from 1 on. A document is written in the oldest that has a
// word for what it says (see FormatFor), so that older hosts read it. History:
//
//	1  2026-11-30  directory, file, package, service
//	2  2026-11-30  file: blob, validate, policy; package: blob, release;
//	               service: masked, reload_on; final
//	3  2026-11-30  container
const Format = 3

// Formats lists the formats this build reads; the profile reports it to the plane.
func Formats() []int { return []int{1, 2, 3} }

// FormatFinal is the oldest format that has the word final.
const FormatFinal = 2

// FormatFor is the oldest format that has a word for everything in list.
func FormatFor(list []Resource) int {
	oldest := 1
	for _, r := range list {
		_, format := r.newest()
		oldest = max(oldest, format)
	}
	return oldest
}

// newest names the member of r that came last, and the format it came with;
// format 1 and no member when there is none that came later.
func (r Resource) newest() (member string, format int) {
	switch {
	case r.Container != nil:
		return "container", 3
	case r.File != nil && r.File.Blob != nil:
		return "file.blob", 2
	case r.File != nil && r.File.Validate != nil:
		return "file.validate", 2
	case r.File != nil && r.File.Policy != "":
		return "file.policy", 2
	case r.Package != nil && r.Package.Blob != nil:
		return "package.blob", 2
	case r.Package != nil && r.Package.Release != "":
		return "package.release", 2
	case r.Service != nil && r.Service.State == StateMasked:
		return "service.state", 2
	case r.Service != nil && r.Service.ReloadOn != nil:
		return "service.reload_on", 2
	}
	return "", 1
}

// Limits on what Parse accepts. They bound work on bytes that came from
// elsewhere; they are far above what a real mesh declares.
const (
	MaxBytes     = 32 << 20 // one document
	MaxResources = 50_000   // resources in one document
	MaxContent   = 8 << 20  // content of one file that is in the document
	MaxBlob      = 64 << 20 // content that is fetched separately
)

// Kind names what a resource is. There are no others than these constants.
type Kind string

// The kinds, in the order of the vocabulary.
const (
	KindDirectory Kind = "directory"
	KindFile      Kind = "file"
	KindPackage   Kind = "package"
	KindService   Kind = "service"
	KindContainer Kind = "container"
)

// Kinds lists every kind this build knows; the profile reports it to the plane.
func Kinds() []Kind {
	return []Kind{KindDirectory, KindFile, KindPackage, KindService, KindContainer}
}

// Declaration is an ordered list of owned resources for one node. The order is
// the order of applying; removal goes the other way.
type Declaration struct {
	Format     int        `json:"format"`
	Mesh       string     `json:"mesh"`       // name of the mesh
	Node       string     `json:"node"`       // name of the node it is for
	Epoch      uint64     `json:"epoch"`      // raised by a restore of the plane; 1 or more
	Generation uint64     `json:"generation"` // rises within an epoch; 1 or more
	Resources  []Resource `json:"resources"`  // may be empty: then all that is owned goes
	// Final ends the membership of the node, once all that is owned is gone and the
	// plane knows. Nothing is declared beside it.
	Final bool `json:"final,omitzero"`
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
	Container *Container `json:"container,omitempty"`
}

// Directory is a directory at an absolute, clean path. Its content is not owned.
type Directory struct {
	Path  string `json:"path"`
	Owner string `json:"owner,omitempty"` // user name; empty means root
	Group string `json:"group,omitempty"` // group name; empty means root
	Mode  string `json:"mode,omitempty"`  // four octal digits; empty means 0755
}

// Blob names content that is not in the document: it is fetched by its digest.
type Blob struct {
	Digest string `json:"digest"` // SHA-256, lower-case hex
	Bytes  int64  `json:"bytes"`  // 1 to MaxBlob
}

// Policy says what becomes of a file that is not as declared.
type Policy string

// The policies of files.
const (
	PolicyEnforce  Policy = "enforce"   // it is put right; also when empty
	PolicyKeepCopy Policy = "keep-copy" // it is put right, and what somebody else wrote is kept beside the host's record
	PolicyOnce     Policy = "once"      // it is made if it was never there; then it is its users'
	PolicyReport   Policy = "report"    // it is never touched; how it differs is reported
)

// Candidate stands for the path of the new file in a validate command.
const Candidate = "{}"

// File is a regular file with its whole content.
type File struct {
	Path    string `json:"path"`
	Owner   string `json:"owner,omitempty"` // user name; empty means root
	Group   string `json:"group,omitempty"` // group name; empty means root
	Mode    string `json:"mode,omitempty"`  // four octal digits; empty means 0644
	Content string `json:"content"`         // UTF-8, at most MaxContent bytes; empty beside a blob

	Blob *Blob `json:"blob,omitempty"` // nil: the content is Content
	// Validate is a command, its program by an absolute path, that is run on the new
	// file before it replaces anything. One argument is Candidate. A status other
	// than 0 refuses the file.
	Validate []string `json:"validate,omitempty"`
	Policy   Policy   `json:"policy,omitempty"`
}

// Package is a Debian package that shall be installed.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // exact Debian version; empty means any installed one will do
	// Release names a source of apt, by its archive or codename ("trixie-backports"):
	// the package is kept at the newest version that source offers. Not with Version.
	Release string `json:"release,omitempty"`
	Blob    *Blob  `json:"blob,omitempty"` // the .deb itself; Version is its version then, and must be there
}

// StateMasked is a service that cannot be started by anybody.
const StateMasked = "masked"

// Service is a systemd unit.
type Service struct {
	Unit    string `json:"unit"`              // with its suffix: "nginx.service"
	State   string `json:"state,omitempty"`   // "running" (also when empty), "stopped" or StateMasked
	Enabled *bool  `json:"enabled,omitempty"` // nil means true
	// RestartOn lists IDs of resources declared before this one; when one of
	// them changes, the unit is restarted, once, at this place in the order.
	RestartOn []string `json:"restart_on,omitempty"`
	// ReloadOn is like RestartOn, but the unit is told to read its configuration
	// again where it can, and restarted where it cannot.
	ReloadOn []string `json:"reload_on,omitempty"`
}

// Blob is the content that r needs and does not hold; nil for none.
func (r Resource) Blob() *Blob {
	switch {
	case r.File != nil:
		return r.File.Blob
	case r.Package != nil:
		return r.Package.Blob
	}
	return nil
}

// Blobs lists the content that list needs and does not hold, each once.
func Blobs(list []Resource) []Blob {
	var all []Blob
	seen := map[string]bool{}
	for _, r := range list {
		if b := r.Blob(); b != nil && !seen[b.Digest] {
			seen[b.Digest] = true
			all = append(all, *b)
		}
	}
	return all
}
