package volatile

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"mesh/lab/companion"
)

// Config is what a server needs; Start writes it as JSON for the process.
type Config struct {
	Directory string `json:"directory"` // of the files behind
	// Mount is where they are shown: an empty directory, made if it is not there
	// and removed by Remove.
	Mount   string `json:"mount"`
	Control string `json:"control"` // path of the control socket
	Log     string `json:"log"`     // path; JSON lines of slog
	// LimitBytes is how much of each disk waits in memory at most; beyond that the
	// oldest is written through, as disks do. Zero: DefaultLimit.
	LimitBytes int64 `json:"limit_bytes,omitempty"`
}

// DefaultLimit is Config.LimitBytes where it is zero.
const DefaultLimit = 256 << 20

func (c Config) limit() int64 {
	if c.LimitBytes == 0 {
		return DefaultLimit
	}
	return c.LimitBytes
}

// Disk is where a file of Directory is to be opened, so that what is not flushed
// can be lost.
func (c Config) Disk(file string) string { return filepath.Join(c.Mount, filepath.Base(file)) }

// config is how a server is told its Config.
var config = companion.Config[Config]{What: "configuration of disks", Check: Config.check}

// ParseConfig reads a configuration as Start wrote it. Unknown and repeated
// members, and what nothing can be served with, are refused.
func ParseConfig(r io.Reader) (Config, error) { return config.Parse(r) }

// ReadConfig reads a configuration from a file.
func ReadConfig(path string) (Config, error) { return config.Read(path) }

// check finds what nothing can be served with, all of it at once.
func (c Config) check() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, one := range []struct{ member, path string }{
		{"directory", c.Directory}, {"mount", c.Mount}, {"control", c.Control}, {"log", c.Log},
	} {
		if !filepath.IsAbs(one.path) {
			add("%s: %q is not an absolute path", one.member, one.path)
		}
	}
	if len(c.Control) > companion.MaxSocket {
		add("control: %q has %d bytes, a socket's path has at most %d; choose a shorter runtime directory",
			c.Control, len(c.Control), companion.MaxSocket)
	}
	if c.LimitBytes < 0 {
		add("limit_bytes: %d is less than zero", c.LimitBytes)
	}
	return errors.Join(problems...)
}
