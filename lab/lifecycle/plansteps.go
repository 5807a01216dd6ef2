package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	"mesh/lab/scenario"
)

// steps lists what a raise does, each step behind all that it comes after.
func steps(p Plan, s *scenario.Scenario, noPlace bool) []Step {
	const (
		daemon, repository, keys = string(StepDaemon), string(StepRepository), string(StepKeys)
		disks, outside           = string(StepDisks), string(StepWorld)
	)
	all := []Step{{ID: daemon, Kind: StepDaemon, About: "hypervisor and accelerator", After: []string{}}}
	add := func(s Step, after ...string) { s.After = after; all = append(all, s) }
	each := func(kind Kind, about string, after func(Machine) []string) {
		for _, m := range p.Machines {
			add(Step{ID: of(kind, m), Kind: kind, Machine: m.Name, About: fmt.Sprintf(about, m.Name)}, after(m)...)
		}
	}
	world := []string{daemon}
	if p.Packages != "" {
		add(Step{ID: repository, Kind: StepRepository, About: "package repository"}, daemon)
		world = []string{repository}
	}
	add(Step{ID: keys, Kind: StepKeys, About: "SSH keys"}, daemon)
	if p.Start == StartWarm {
		for _, m := range p.Machines {
			id := warmStep(m)
			if p.startsWarm(m) && !slices.ContainsFunc(all, func(s Step) bool { return s.ID == id }) {
				add(Step{ID: id, Kind: StepWarm, About: "warm image of " + sized(m)}, daemon)
			}
		}
	}
	each(StepDisk, "disk of %s", func(m Machine) []string {
		if p.startsWarm(m) {
			return []string{warmStep(m)}
		}
		return []string{daemon}
	})
	add(Step{ID: outside, Kind: StepWorld, About: "the world: segments, routers, services"}, world...)
	add(Step{ID: disks, Kind: StepDisks, About: "disks that lose what is not flushed"}, daemon)
	each(StepMachine, "%s stands, paused", func(m Machine) []string { return []string{of(StepDisk, m), disks} })
	each(StepJoin, "%s is joined to its segments", func(m Machine) []string { return []string{of(StepMachine, m), outside} })
	var booted []string
	each(StepBoot, "%s runs and is itself", func(m Machine) []string {
		booted = append(booted, of(StepBoot, m))
		return []string{of(StepJoin, m), keys}
	})
	if !noPlace {
		all = append(all, placements(s, booted)...)
	}
	return all
}

// of is the id of a machine's step.
func of(kind Kind, m Machine) string { return string(kind) + ":" + m.Name }

// startsWarm tells whether a machine is to be cloned: warm images have no display.
func (p Plan) startsWarm(m Machine) bool { return p.Start == StartWarm && !m.Spec.Display }

// warmStep is the id of the step that finds a machine's warm image.
func warmStep(m Machine) string {
	return fmt.Sprintf("%s:%s-%dMiB-%dCPU", StepWarm, m.Image, m.Spec.MemoryBytes>>20, m.Spec.CPUs)
}

func sized(m Machine) string {
	return fmt.Sprintf("%s, %d MiB, %d CPU", m.Image, m.Spec.MemoryBytes>>20, m.Spec.CPUs)
}

// placements come one after the other when all machines have booted.
func placements(s *scenario.Scenario, after []string) (all []Step) {
	for i, step := range s.Place {
		id := fmt.Sprintf("place:%d", i+1)
		all = append(all, Step{
			ID: id, Kind: StepPlace, Machine: step.On, About: placing(step), After: after,
			Place: &Placement{
				Package: step.Package, File: step.File, To: step.To, Run: step.Run,
				Input: step.Input, Save: step.Save, Line: step.Line,
			},
		})
		after = []string{id}
	}
	return all
}

// placing describes a placement in one line.
func placing(s scenario.Step) string {
	switch {
	case s.Package != "":
		return "package " + s.Package + " on " + s.On
	case s.File != "":
		return "file " + s.To + " on " + s.On
	}
	line, more, _ := strings.Cut(strings.TrimSpace(s.Run), "\n")
	if more != "" || len(line) > 70 {
		line = string([]rune(line)[:min(len([]rune(line)), 70)]) + "…"
	}
	return "on " + s.On + ": " + line
}
