package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
)

// packageForm is Debian Policy's rule for package names (section 5.6.1).
var packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

func (d *decoder) place(doc *document, s *Scenario) {
	saved := map[string]int{} // name → line
	for i, written := range doc.Place.Items {
		if written.At == (Position{}) {
			continue
		}
		where := fmt.Sprintf("place, number %d", i+1)
		step := Step{
			On: written.On.Value, Package: written.Package.Value,
			File: written.File.Value, FileAt: written.File.At, To: written.To.Value,
			Run: written.Run.Value, Input: written.Input.Value, Save: written.Save.Value,
			Line: written.At.Line,
		}
		if machines := doc.Machines.names(); written.On.usable() && !slices.Contains(machines, step.On) {
			d.add(written.On.At, "%s: there is no machine %q; %s", where, step.On, Suggest(step.On, machines))
		}
		d.deed(where, written)
		d.passing(where, written, doc, saved)
		s.Place = append(s.Place, step)
	}
}

// deed checks that a step does one thing, and can do it.
func (d *decoder) deed(where string, written instruction) {
	var deeds []text
	for _, t := range []text{written.Package, written.File, written.Run} {
		if t.written() {
			deeds = append(deeds, t)
		}
	}
	switch len(deeds) {
	case 0:
		d.add(written.At, "%s: it does nothing; give it one of package, file or run", where)
	case 1:
	default:
		d.add(deeds[1].At, "%s: it does several things; give package, file and run a step each", where)
	}
	if t := written.Package; t.usable() && !packageForm.MatchString(t.Value) {
		d.add(t.At, "%s: %q cannot be the name of a package; use a-z, 0-9, +, - and .", where, t.Value)
	}
	if t := written.File; t.usable() && (!fs.ValidPath(t.Value) || t.Value == ".") {
		d.add(t.At, "%s: file %q is not beside the scenario; name one in its directory or below, without . and ..", where, t.Value)
	}
	if t := written.To; t.usable() && (!path.IsAbs(t.Value) || path.Clean(t.Value) != t.Value || t.Value == "/") {
		d.add(t.At, "%s: to: %q is not the absolute path of a file; write it from / on, without . and .. and without a / at the end", where, t.Value)
	}
	if written.File.written() && !written.To.written() {
		d.add(written.File.At, "%s: the file has no place on the machine; add `to` with an absolute path", where)
	}
	if written.To.written() && !written.File.written() {
		d.add(written.To.At, "%s: `to` goes with `file` only; leave it out", where)
	}
}

// passing checks what a step takes from earlier ones and leaves to later ones.
func (d *decoder) passing(where string, written instruction, doc *document, saved map[string]int) {
	for _, t := range []text{written.Input, written.Save} {
		if t.written() && !written.Run.written() {
			d.add(t.At, "%s: `input` and `save` go with `run` only; leave it out", where)
		}
	}
	if t := written.Input; t.usable() && saved[t.Value] == 0 {
		later := slices.IndexFunc(doc.Place.Items, func(i instruction) bool { return i.Save.Value == t.Value })
		if later >= 0 {
			d.add(t.At, "%s: input %q is saved in line %d only; a step uses what an earlier one saved", where, t.Value, doc.Place.Items[later].Save.At.Line)
		} else {
			d.add(t.At, "%s: nothing is saved as %q; %s", where, t.Value, Suggest(t.Value, savedNames(doc)))
		}
	}
	if t := written.Save; t.usable() {
		if err := CheckName(t.Value); err != nil {
			d.add(t.At, "%s: save: %v", where, err)
		} else if saved[t.Value] != 0 {
			d.add(t.At, "%s: %q is saved in line %d already; choose another name", where, t.Value, saved[t.Value])
		}
		saved[t.Value] = t.At.Line
	}
}

func savedNames(doc *document) []string {
	var names []string
	for _, i := range doc.Place.Items {
		if i.Save.usable() && !slices.Contains(names, i.Save.Value) {
			names = append(names, i.Save.Value)
		}
	}
	return names
}

// CheckImages reports each machine whose image is not among known, the names of
// the recipes there are.
func (s *Scenario) CheckImages(known []string) Problems {
	r := report{file: s.File}
	for _, m := range s.Machines {
		if !slices.Contains(known, m.Image) {
			r.add(m.ImageAt, "machine %q: there is no image recipe %q; %s", m.Name, m.Image, Suggest(m.Image, known))
		}
	}
	return r.sorted()
}

// CheckFiles reports each step whose file is not a regular file of beside, the
// scenario's directory.
func (s *Scenario) CheckFiles(beside fs.FS) Problems {
	r := report{file: s.File}
	for _, step := range s.Place {
		if step.File == "" {
			continue
		}
		info, err := fs.Stat(beside, step.File)
		if err != nil {
			r.add(step.FileAt, "file %q cannot be read beside the scenario: %v; put it there or correct the name", step.File, cause(err))
		} else if !info.Mode().IsRegular() {
			r.add(step.FileAt, "%q is not a file; name one file for each step", step.File)
		}
	}
	return r.sorted()
}

// cause is why a file cannot be read, without the path that the message names.
func cause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func quote(name string) string { return fmt.Sprintf("%q", name) }
