// Package recipes holds the machine images' recipes as data: one document for
// each image, named after it, and the scripts that they share. Package
// lab/images reads and builds them.
package recipes

import "embed"

// Files is this directory: <image>.yaml and hooks/<name>.sh.
//
//go:embed *.yaml hooks/*.sh
var Files embed.FS
