package declaration

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// forbidden are the trees no resource lies in: the kernel's, and the host's own
// state, which a declaration could otherwise use to rewrite its own record.
var forbidden = []string{"/proc", "/sys", "/dev", "/var/lib/mesh-host", "/run/mesh-host"}

// path reports p unless a resource may lie there.
func (c *checker) path(at, p string) bool {
	var wrong string
	switch {
	case p == "":
		wrong = "it is empty; wanted an absolute path"
	case len(p) > maxPath:
		wrong = fmt.Sprintf("%d bytes, at most %d are allowed", len(p), maxPath)
	case !utf8.ValidString(p):
		wrong = "it is not UTF-8"
	case strings.ContainsFunc(p, unicode.IsControl):
		wrong = fmt.Sprintf("%s has a control character in it", shown(p))
	case p[0] != '/':
		wrong = fmt.Sprintf("%s is not absolute", shown(p))
	case path.Clean(p) != p:
		wrong = fmt.Sprintf("%s is not clean; wanted %s", shown(p), shown(path.Clean(p)))
	case p == "/":
		wrong = "the root directory cannot be owned"
	default:
		wrong = misplaced(p)
	}
	if wrong != "" {
		c.add(at, "%s", wrong)
	}
	return wrong == ""
}

func misplaced(p string) string {
	for _, tree := range forbidden {
		if p == tree || strings.HasPrefix(p, tree+"/") {
			return fmt.Sprintf("%s is in %s, where nothing can be owned", shown(p), tree)
		}
	}
	for part := range strings.SplitSeq(p[1:], "/") {
		if len(part) > maxName {
			return fmt.Sprintf("%s has a part of %d bytes, at most %d are allowed", shown(p), len(part), maxName)
		}
	}
	return ""
}

// nesting reports resources that lie below a file, and directories declared
// after something inside them: applied in that order the parent would come too
// late, and removed in the reverse order it would never be empty.
func (c *checker) nesting(list []Resource) {
	files, inside := map[string]string{}, map[string]string{} // path → id
	for _, r := range list {
		if r.Kind() == KindFile {
			files[r.File.Path] = r.ID
		}
	}
	for i, r := range list {
		kind := r.Kind()
		if kind != KindFile && kind != KindDirectory {
			continue
		}
		p, at := r.Where(), fmt.Sprintf("resources[%d].%s.path", i, kind)
		if id, found := inside[p]; found && kind == KindDirectory {
			c.add(at, "%s is declared after %q, which lies in it; declare the directory first", shown(p), id)
		}
		for dir := path.Dir(p); len(dir) > 1; dir = path.Dir(dir) {
			if id, found := files[dir]; found {
				c.add(at, "%s lies below %s, which %q declares as a file", shown(p), shown(dir), id)
			}
			if _, found := inside[dir]; !found {
				inside[dir] = r.ID
			}
		}
	}
}
