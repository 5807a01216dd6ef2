package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// buildFormat numbers what a build makes of a recipe. It is part of every
// digest, so a change to this package that changes images raises it.
const buildFormat = 2

// Recipe says how an image is made. Its document is images/<name>.yaml.
type Recipe struct {
	Name      string   // of the document, without .yaml
	Suite     string   // Debian release by code name
	DiskBytes int64    // virtual size; only what is written takes space
	Cmdline   string   // kernel parameters without which it does not boot
	Include   []string // packages on the disk, beside the essential ones and their needs
	Offer     []string // packages in the repository, with all that they need
	Prepare   []Hook   // run when only essential packages are unpacked
	Hooks     []Hook   // run in order when all packages are installed
}

// Hook is a shell script run with `sh -eu` inside the tree that becomes the
// disk. IMAGE in its environment is the recipe's name.
type Hook struct {
	Name   string // of its file in images/hooks, without .sh
	Script string
}

// document is a recipe as written.
type document struct {
	Suite   string   `yaml:"suite"`
	Disk    string   `yaml:"disk"`
	Cmdline string   `yaml:"cmdline"`
	Include []string `yaml:"include"`
	Offer   []string `yaml:"offer"`
	Prepare []string `yaml:"prepare"`
	Hooks   []string `yaml:"hooks"`
}

var (
	nameForm    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`) // Debian policy 5.6.1
	cmdlineForm = regexp.MustCompile(`^[!-~]+( [!-~]+)*$`)
)

// Recipes reads every recipe of files in order of their names. Whatever is
// wrong with any of them is reported, all of it, joined.
func Recipes(files fs.FS) ([]Recipe, error) {
	var all []Recipe
	var problems []error
	for _, name := range recipeNames(files) {
		recipe, err := ParseRecipe(files, name)
		all, problems = append(all, recipe), append(problems, err)
	}
	return all, errors.Join(problems...)
}

// ParseRecipe reads files' <name>.yaml and the hooks it names. A key it does
// not know, a key given twice and anything a build could only fail on are
// refused, all at once. It returns ErrUnknown when there is no such document.
func ParseRecipe(files fs.FS, name string) (Recipe, error) {
	content, err := fs.ReadFile(files, name+".yaml")
	if !nameForm.MatchString(name) || errors.Is(err, fs.ErrNotExist) {
		return Recipe{}, unknown(files, name)
	}
	if err != nil {
		return Recipe{}, fmt.Errorf("read recipe %s: %v", name, err)
	}
	d, err := decode(content)
	if err != nil {
		return Recipe{}, fmt.Errorf("%s.yaml: %v", name, yaml.FormatError(err, false, false))
	}
	return d.recipe(files, name)
}

// decode reads a document that is nothing but mappings, lists and values: the
// library ends the program on some anchors and tags.
func decode(content []byte) (d document, err error) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return d, err
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue // nothing but a comment
		}
		for _, kind := range []ast.NodeType{ast.AnchorType, ast.AliasType, ast.TagType, ast.MergeKeyType, ast.MappingKeyType} {
			if found := ast.Filter(kind, doc.Body); len(found) > 0 {
				at := found[0].GetToken().Position
				return d, fmt.Errorf("[%d:%d] a recipe has no anchors, aliases, tags, merged or complex keys; write the value itself", at.Line, at.Column)
			}
		}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return d, io.EOF
	}
	return d, yaml.NodeToValue(file.Docs[0].Body, &d, yaml.Strict())
}

// recipe checks a document and reads the hooks it names.
func (d document) recipe(files fs.FS, name string) (Recipe, error) {
	var problems []error
	refuse := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s.yaml: %s: %s", name, key, fmt.Sprintf(format, args...)))
	}
	hooks := func(key string, names []string) (hooks []Hook) {
		for _, h := range names {
			script, err := fs.ReadFile(files, path.Join("hooks", h+".sh"))
			if err != nil {
				refuse(key, "there is no script hooks/%s.sh", h)
			}
			hooks = append(hooks, Hook{Name: h, Script: string(script)})
		}
		return hooks
	}
	packages := func(key string, names []string) []string {
		for i, p := range names {
			if !packageForm.MatchString(p) {
				refuse(key, "%q is not the name of a package", p)
			}
			if slices.Contains(names[:i], p) {
				refuse(key, "%q stands twice", p)
			}
		}
		return names
	}
	r := Recipe{
		Name: name, Suite: d.Suite, Cmdline: d.Cmdline,
		Include: packages("include", d.Include), Offer: packages("offer", d.Offer),
		Prepare: hooks("prepare", d.Prepare), Hooks: hooks("hooks", d.Hooks),
	}
	if !nameForm.MatchString(d.Suite) {
		refuse("suite", "%q is not the code name of a release, for example trixie", d.Suite)
	}
	if !cmdlineForm.MatchString(d.Cmdline) {
		refuse("cmdline", "%q is not a list of kernel parameters, one space between two", d.Cmdline)
	}
	if size, ok := strings.CutSuffix(d.Disk, "GiB"); ok {
		if gib, err := strconv.ParseUint(size, 10, 10); err == nil {
			r.DiskBytes = int64(gib) << 30
		}
	}
	if r.DiskBytes == 0 {
		refuse("disk", "%q is not a size, for example 4GiB", d.Disk)
	}
	return r, errors.Join(problems...)
}

// recipeNames lists the names of the documents in files, in order.
func recipeNames(files fs.FS) []string {
	documents, err := fs.Glob(files, "*.yaml")
	if err != nil { // the pattern is well formed
		panic(err)
	}
	for i := range documents {
		documents[i] = strings.TrimSuffix(documents[i], ".yaml")
	}
	return documents
}

// unknown says which names there are.
func unknown(files fs.FS, name string) error {
	return problem{
		what: fmt.Sprintf("find image %q", name), why: ErrUnknown.Error(),
		do: "use one of " + strings.Join(recipeNames(files), ", "), code: exitUsage, state: ErrUnknown,
	}
}

// Digest is what the image is found by: 64 hex digits over everything that
// decides what a build makes, the versions of packages aside.
func (r Recipe) Digest() string {
	canonical, err := json.Marshal(struct {
		Format int
		Recipe Recipe
	}{buildFormat, r})
	if err != nil { // text and numbers only
		panic(err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
