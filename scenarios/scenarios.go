// Package scenarios holds the scenarios that ship with the lab, as data: one
// document for each, named after the scenario, and beside it, in a directory of
// the same name, the files that it places.
package scenarios

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

// Files is this directory: documents, and the files their steps refer to.
//
//go:embed *.yaml first-node
var Files embed.FS

// Names lists the shipped scenarios in alphabetical order. The document of each
// is Files' <name>.yaml.
func Names() []string {
	documents, err := fs.Glob(Files, "*.yaml")
	if err != nil { // the pattern is ours and well formed
		panic(err)
	}
	names := make([]string, len(documents))
	for i, document := range documents {
		names[i] = strings.TrimSuffix(path.Base(document), ".yaml")
	}
	return names
}
