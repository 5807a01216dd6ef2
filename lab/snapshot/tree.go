package snapshot

import (
	"fmt"
	"io"
	"slices"
)

// Node is a snapshot and those that come of it.
type Node struct {
	Manifest
	Children []Node
}

// Parent is the nearest of m's ancestors that is among all.
func (m Manifest) Parent(all []Manifest) (Manifest, bool) {
	for _, id := range m.Ancestors {
		at := slices.IndexFunc(all, func(o Manifest) bool { return o.ID == id && id != m.ID })
		if at >= 0 {
			return all[at], true
		}
	}
	return Manifest{}, false
}

// Tree orders snapshots by descent: each below its Parent, children from old to
// new.
func Tree(all []Manifest) []Node {
	below := map[string][]Manifest{} // by parent's id; "": without one
	for _, m := range all {
		parent, _ := m.Parent(all)
		below[parent.ID] = append(below[parent.ID], m)
	}
	var grow func(parent string) []Node
	grow = func(parent string) (nodes []Node) {
		for _, m := range below[parent] {
			nodes = append(nodes, Node{m, grow(m.ID)})
		}
		slices.SortStableFunc(nodes, func(a, b Node) int { return a.Taken.Compare(b.Taken) })
		return nodes
	}
	return grow("")
}

// WriteTree draws trees, a line each snapshot; label gives its words.
func WriteTree(w io.Writer, nodes []Node, label func(Manifest) string) error {
	return writeTree(w, nodes, "", true, label)
}

func writeTree(w io.Writer, nodes []Node, indent string, roots bool, label func(Manifest) string) error {
	for i, n := range nodes {
		branch, below := "├── ", "│   "
		if i == len(nodes)-1 {
			branch, below = "└── ", "    "
		}
		if roots {
			branch, below = "", ""
		}
		if _, err := fmt.Fprintln(w, indent+branch+label(n.Manifest)); err != nil {
			return err
		}
		if err := writeTree(w, n.Children, indent+below, false, label); err != nil {
			return err
		}
	}
	return nil
}
