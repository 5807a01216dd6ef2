package main

import (
	"fmt"
	"strconv"
	"strings"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
)

// showRaised says what stands after a raise and how to look into it.
func (a *app) showRaised(s lifecycle.Status) error {
	fmt.Fprintf(a.Out, "scenario %s stands: machines run by %s\n\n", s.Name, s.Accelerator)
	if err := a.machines(s); err != nil {
		return err
	}
	first := s.Machines[0].Name
	_, err := fmt.Fprintf(a.Out, `
look into it:
  lab status %[1]s
  lab watch %[1]s
  lab exec %[1]s %[2]s -- systemctl --failed
  lab ssh %[1]s %[2]s
  lab console %[1]s %[2]s          (Ctrl-] leaves)
  lab logs %[1]s %[2]s --journal
  lab collect %[1]s              everything that may explain a failure
remove it:
  lab destroy %[1]s
`, s.Name, first)
	return err
}

// machines writes the tables of a scenario's machines and of where they stand;
// each fits into 80 columns.
func (a *app) machines(s lifecycle.Status) error {
	var machines, places [][]string
	for _, m := range s.Machines {
		agent := "silent"
		if m.Agent {
			agent = "answers"
		}
		ready := "-"
		if m.Start != "" {
			ready = fmt.Sprintf("%.1f s (%s)", m.ReadySeconds, m.Start)
		}
		machines = append(machines, []string{m.Name, m.State, agent, m.Image, orNone(string(m.Accelerator)), ready})
		for _, at := range m.Addresses {
			places = append(places, []string{m.Name, at.Segment, orNone(at.IPv4), orNone(at.IPv6)})
		}
	}
	if err := cli.Table(a.Out, []string{"MACHINE", "STATE", "AGENT", "IMAGE", "ACCELERATOR", "READY AFTER"}, machines); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return cli.Table(a.Out, []string{"MACHINE", "SEGMENT", "IPV4", "IPV6"}, places)
}

// orNone is a cell that may have nothing in it.
func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// showStatus writes everything that is known of a scenario.
func (a *app) showStatus(s lifecycle.Status) error {
	fmt.Fprintf(a.Out, "scenario     %s (%s, from %s)\n", s.Name, s.Scenario, s.Source)
	fmt.Fprintf(a.Out, "phase        %s\n", s.Phase)
	if s.Abandoned != "" {
		fmt.Fprintf(a.Out, "abandoned    %s; %s\n", s.Abandoned, s.Phase.Remedy())
	}
	fmt.Fprintf(a.Out, "since        %s\n", s.Since.Format("2006-01-02 15:04:05 UTC"))
	if s.Accelerator != "" {
		fmt.Fprintf(a.Out, "accelerator  %s (%s)\n", s.Accelerator, s.Why)
	}
	fmt.Fprintf(a.Out, "kept in      %s\n\n", s.Directory)
	if err := a.machines(s); err != nil {
		return err
	}
	if len(s.Roamers) > 0 {
		fmt.Fprint(a.Out, "\nroam\n")
	}
	for _, r := range s.Roamers {
		fmt.Fprintf(a.Out, "  %s: in %s; can stand in %s\n", r.Name, r.At, strings.Join(r.Segments, ", "))
	}
	if len(s.Faults) > 0 {
		fmt.Fprintln(a.Out)
		if err := a.showFaults(s.Faults); err != nil {
			return err
		}
	}
	fmt.Fprint(a.Out, "\nconsoles\n")
	for _, m := range s.Machines {
		fmt.Fprintf(a.Out, "  %s: %s\n", m.Name, m.ConsoleLog)
	}
	a.showWorld(s.World)
	a.showDisks(s.Name, s.Disks)
	var rows [][]string
	for _, step := range s.Steps {
		state, seconds := string(step.State), "-"
		if state == "" {
			state = "not begun"
		}
		if step.Seconds > 0 {
			seconds = strconv.FormatFloat(step.Seconds, 'f', 1, 64) + " s"
		}
		rows = append(rows, []string{state, seconds, step.About})
	}
	fmt.Fprintln(a.Out)
	if err := cli.Table(a.Out, []string{"STATE", "TOOK", "STEP"}, rows); err != nil {
		return err
	}
	for _, step := range s.Steps {
		if step.Error != "" {
			fmt.Fprintf(a.Out, "\n%s failed: %s\n", step.About, step.Error)
		}
	}
	return nil
}

func (a *app) showWorld(w lifecycle.WorldStatus) {
	if w.Problem != "" {
		fmt.Fprintf(a.Out, "\nworld: %s (its log: %s)\n", w.Problem, w.Log)
	} else {
		fmt.Fprintf(a.Out, "\nworld: process %d, log %s\n", w.PID, w.Log)
	}
	for _, service := range w.Services {
		state := "ok"
		if !service.OK {
			state = "not ok: " + service.Why
		}
		fmt.Fprintf(a.Out, "  %s: %s\n", service.Name, state)
	}
}

// showDisks says what a power cut does to what was not flushed.
func (a *app) showDisks(name string, d lifecycle.DisksStatus) {
	switch {
	case !d.Volatile && d.Problem != "":
		fmt.Fprintf(a.Out, "\ndisks: what is not flushed survives a power cut here: %s\n", d.Problem)
	case d.Volatile && d.Problem != "":
		fmt.Fprintf(a.Out, "\ndisks: %s (log: %s)\n", d.Problem, d.Log)
	case d.Volatile:
		fmt.Fprintf(a.Out, "\ndisks: what is not flushed is lost with the power; process %d, log %s\n", d.PID, d.Log)
	}
	for _, disk := range d.Disks {
		if f := disk.Fault; f != nil {
			fmt.Fprintf(a.Out, "  %s has a fault: %s\n", disk.Name, f)
		}
	}
	for _, machine := range d.Lost {
		fmt.Fprintf(a.Out, "  machine %[2]s gets errors from its disk until its power was cut and given back:\n"+
			"    lab power cut %[1]s %[2]s && lab power on %[1]s %[2]s\n", name, machine)
	}
}
