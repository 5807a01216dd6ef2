package lifecycle

import (
	"fmt"
	"strings"
)

// String renders the plan for people: what will stand, and the steps in order.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "raise %s as %s (run %s)\n", p.Document, p.Name, p.Run)
	fmt.Fprintf(&b, "accelerator %s, %d MiB of memory, %d MiB of disk\n", p.Accelerator, p.MemoryBytes>>20, p.DiskBytes>>20)
	if p.Start == StartWarm {
		b.WriteString("machines start warm, from images that are made if they are not there\n")
	}
	if p.Packages != "" {
		fmt.Fprintf(&b, "machines can install the packages of %s\n", p.Packages)
	}
	b.WriteString("\nmachines\n")
	for _, m := range p.Machines {
		fmt.Fprintf(&b, "  %s: %s, %d MiB, %d CPU\n", m.Name, m.Image, m.Spec.MemoryBytes>>20, m.Spec.CPUs)
		for _, a := range Addresses(p, m.Name) {
			fmt.Fprintf(&b, "    %s: %s\n", a.Segment, strings.Join(a.list(), " "))
		}
	}
	b.WriteString("\nmade on this machine, and removed by `lab destroy " + p.Name + "`\n")
	for _, o := range p.Objects {
		fmt.Fprintf(&b, "  %s %s\n", o.Kind, o.Name)
	}
	b.WriteString("\nsteps\n")
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %s\n", s.About)
	}
	return b.String()
}

// list gives the addresses there are.
func (a Address) list() (all []string) {
	for _, one := range []string{a.IPv4, a.IPv6} {
		if one != "" {
			all = append(all, one)
		}
	}
	return all
}
