// Package declare turns what is known of a node into its declaration: the
// resources of every module assigned to it, merged, numbered and signed.
//
// The same facts give the same bytes, whatever order they were learnt in. A
// generation is made when what a node shall hold differs from its newest one,
// and only then: a restart of the plane makes none.
package declare

import (
	"fmt"
	"slices"

	"mesh/host/declaration"
	"mesh/plane/module"
	"mesh/plane/refusal"
)

// Merge lists the resources of modules in the order of applying: modules by
// name, each in its own order. Every path, package, unit and container has one owner: two
// modules that declare the same are refused, with a *refusal.Error that names
// both.
func Merge(catalogue module.Catalogue, modules []string) ([]declaration.Resource, error) {
	merged := []declaration.Resource{}
	owners := map[string]string{}
	for _, name := range slices.Sorted(slices.Values(modules)) {
		m, err := catalogue.Named(name)
		if err != nil {
			return nil, err
		}
		for _, r := range catalogue.Resources(m) {
			place := placeOf(r)
			if other, taken := owners[place]; taken {
				return nil, &refusal.Error{
					Kind: refusal.Conflict,
					What: fmt.Sprintf("modules %q and %q on one node", other, name),
					Why:  fmt.Sprintf("both declare %s, and every resource has one owner", place),
					Do:   "assign them to different nodes",
				}
			}
			owners[place] = name
			merged = append(merged, r)
		}
	}
	return merged, nil
}

// placeOf says what on the machine r owns. Files and directories share one
// name space; packages and units have their own.
func placeOf(r declaration.Resource) string {
	switch r.Kind() {
	case declaration.KindPackage:
		return "package " + r.Where()
	case declaration.KindService:
		return "unit " + r.Where()
	case declaration.KindContainer:
		return "container " + r.Where()
	}
	return "path " + r.Where()
}
