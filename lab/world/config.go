package world

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"mesh/lab/companion"
)

// configuration is how a world is told its Config.
var configuration = companion.Config[Config]{What: "world configuration", Check: Config.check}

// ParseConfig reads a configuration as WriteConfig wrote it. Unknown and
// repeated members, and what no world could run with, are refused.
func ParseConfig(r io.Reader) (Config, error) { return configuration.Parse(r) }

// ReadConfig reads a configuration from a file.
func ReadConfig(path string) (Config, error) { return configuration.Read(path) }

// WriteConfig replaces a file with a configuration.
func WriteConfig(path string, c Config) error { return configuration.Write(path, c) }

// check finds what no world could run with, all of it at once.
func (c Config) check() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Underlay.Namespace == "" {
		add("underlay.namespace: empty; a world needs one of its own")
	}
	for name, path := range map[string]string{"control": c.Control, "log": c.Log} {
		if !filepath.IsAbs(path) {
			add("%s: %q is not an absolute path", name, path)
		}
	}
	if len(c.Control) > companion.MaxSocket {
		add("control: %q has %d bytes, a socket's path has at most %d; choose a shorter runtime directory",
			c.Control, len(c.Control), companion.MaxSocket)
	}
	for name, dir := range c.Repositories {
		if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
			add("repositories: %q cannot be one part of a URL's path", name)
		}
		if !filepath.IsAbs(dir) {
			add("repositories: %s: %q is not an absolute path", name, dir)
		}
	}
	return errors.Join(problems...)
}
