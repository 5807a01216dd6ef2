package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mesh/cmd/internal/cli"
	"mesh/lab/scenario"
	"mesh/scenarios"
)

// document is one scenario, and what lies beside it.
type document struct {
	source   string // as the operator said it
	scenario *scenario.Scenario
	files    fs.FS
}

// isPath tells a file from a name: what has a slash or ends in .yaml is a path.
func isPath(source string) bool {
	return strings.ContainsRune(source, '/') || strings.HasSuffix(source, ".yaml") || strings.HasSuffix(source, ".yml")
}

// openScenario reads the scenario that ships under a name, or the one in a file.
func openScenario(source string) (document, error) {
	dir, name := fs.FS(scenarios.Files), source+".yaml"
	label := "scenarios/" + name
	if isPath(source) {
		root, err := os.OpenRoot(filepath.Dir(source))
		if err != nil {
			return document{}, cli.WithCode(cli.Usage, fmt.Errorf("read scenario %s: %w", source, err))
		}
		dir, name, label = root.FS(), filepath.Base(source), source
	} else if !slices.Contains(scenarios.Names(), source) {
		return document{}, cli.WithCode(cli.Usage, fmt.Errorf("no scenario %q ships with the lab; these do: %s (a file is named by its path: ./%s)",
			source, strings.Join(scenarios.Names(), ", "), name))
	}
	f, err := dir.Open(name)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return document{}, cli.WithCode(cli.Usage, fmt.Errorf("read scenario %s: %w", source, err))
	}
	defer f.Close()
	if err := noDirectory(f); err != nil {
		return document{}, cli.WithCode(cli.Usage, fmt.Errorf("read scenario %s: %w", source, err))
	}
	s, err := scenario.Parse(label, io.LimitReader(f, 1<<20))
	if err != nil {
		return document{}, err
	}
	return document{source: source, scenario: s, files: dir}, nil
}

// noDirectory refuses a directory in place of a document.
func noDirectory(f fs.File) error {
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return errors.New("it is a directory; name a file in it")
	}
	return nil
}
