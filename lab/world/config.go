package world

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mesh/lab/companion"
)

// ParseConfig reads a configuration as WriteConfig wrote it. Unknown and
// repeated members, and what no world could run with, are refused.
func ParseConfig(r io.Reader) (Config, error) {
	var c Config
	if err := json.UnmarshalRead(r, &c, json.RejectUnknownMembers(true)); err != nil {
		return Config{}, fmt.Errorf("read world configuration: %v", err)
	}
	return c, c.check()
}

// ReadConfig reads a configuration from a file.
func ReadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read world configuration: %v", err)
	}
	defer f.Close()
	c, err := ParseConfig(f)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// WriteConfig replaces a file with a configuration.
func WriteConfig(path string, c Config) error {
	err := c.check()
	var text []byte
	if err == nil {
		text, err = json.Marshal(c, jsontext.WithIndent("  "), json.Deterministic(true))
	}
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write world configuration %s: %v", path, err)
	}
	return nil
}

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
