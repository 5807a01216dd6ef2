package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/fault"
	"mesh/lab/lifecycle"
)

func newFault(a *app) *cobra.Command {
	group := &cobra.Command{
		Use:   "fault",
		Short: "Strike a raised scenario with faults, and undo them by name",
		Long: `Strike a raised scenario with faults, and undo them by name. Faults compose, and
hold until they are undone, whatever becomes of this command; those of a machine
strike it again when it boots. ` + "`lab power`" + ` is short for faults of power, and
` + "`lab timeline`" + ` does faults in time.`,
	}
	group.AddCommand(newFaultAdd(a), newFaultList(a), newFaultRemove(a), newFaultKinds(a))
	return group
}

func newFaultAdd(a *app) *cobra.Command {
	values := map[string]*string{}
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use:   "add NAME KIND [TARGET...]",
		Short: "Make a fault strike",
		Long: `Make a fault strike the scenario that is raised as NAME. The answer is the
fault's name, by which it is undone.

KIND is one of ` + "`lab fault kinds`" + `, which tells what each strikes and takes.
TARGET is a name, or says of what kind it is: machine:NAME, machine:NAME@SEGMENT
(one of its NICs), segment:NAME, router:NAME, service:NAME, or world.

Reads that disk-error makes fail are of what the machine wrote since its raise,
restore or last snapshot: the layers below are read by the hypervisor itself.`,
		Example: `  lab fault add first-node loss two --share 30% --direction out
  lab fault add first-node partition one --from two,world --name split
  lab fault add first-node delay router:gateway --delay 150ms --jitter 20ms
  lab fault add first-node clock-step two --by -1d
  lab fault add first-node disk-full one --leave 1MiB
  lab fault add first-node dns-failing --how silent --zone world.test
  lab fault add first-node service-stopped issuer`,
		Args:              cli.UsageArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: a.completeFaultAdd,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := faultOf(c, name, args[1], args[2:], values)
			if err != nil {
				return err
			}
			cfg, lab := a.lab()
			done := cfg.Progress.Step(f.String())
			added, err := lab.AddFault(c.Context(), args[0], f)
			done(err)
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.JSON(a.Out, added)
			case added.State == "": // there is nothing to undo
				return nil
			}
			_, err = fmt.Fprintln(a.Out, added.Name)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "what it is undone by (default: made from its kind and target)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	for _, p := range fault.Parameters() {
		values[p.Key] = c.Flags().String(p.Key, "", p.About+", for example "+p.Example)
	}
	return c
}

// faultOf reads a fault as a command says it; everything that is wrong with it is
// reported at once.
func faultOf(c *cobra.Command, name, kind string, targets []string, values map[string]*string) (fault.Fault, error) {
	f := fault.Fault{Name: name, Kind: fault.Kind(kind)}
	var problems fault.Problems
	for _, word := range targets {
		t, err := fault.ParseTarget(word)
		if err != nil {
			problems = append(problems, fault.Problem{Key: "target", Message: err.Error()})
			continue
		}
		f.On = append(f.On, t)
	}
	for _, p := range fault.Parameters() {
		if !c.Flags().Changed(p.Key) {
			continue
		}
		if err := f.Set(p.Key, *values[p.Key]); err != nil {
			problems = append(problems, fault.Problem{Key: "--" + p.Key, Message: err.Error()})
		}
	}
	if len(problems) == 0 {
		problems = fault.Check(f)
	}
	return f, problems.Err()
}

func newFaultList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "list NAME",
		Short:             "List the faults of a scenario",
		Example:           "  lab fault list first-node\n  lab fault list first-node --json | jq -r .[].name",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, lab := a.lab()
			all, err := lab.Faults(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, append([]lifecycle.FaultRecord{}, all...))
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(a.Err, "no fault is in force")
				return err
			}
			return a.showFaults(all)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) showFaults(all []lifecycle.FaultRecord) error {
	var rows [][]string
	for _, f := range all {
		rows = append(rows, []string{f.Name, string(f.State), f.Since.Format("2006-01-02 15:04:05 UTC"), doneBy(f.Fault), f.Fault.String()})
	}
	return cli.Table(a.Out, []string{"FAULT", "STATE", "SINCE", "DONE BY", "WHAT"}, rows)
}

// doneBy tells by what means a fault is done.
func doneBy(f fault.Fault) string {
	switch f.Kind {
	case fault.Delay, fault.RateLimit:
		return "delay line"
	case fault.Loss, fault.Partition:
		return "filter"
	case fault.DiskFull, fault.Memory, fault.ClockStep, fault.ClockDrift:
		return "guest"
	case fault.LinkDown:
		if f.OfWorld() {
			return "filter"
		}
	}
	if f.OfWorld() {
		return "world"
	}
	return "hypervisor"
}

func newFaultRemove(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:               "remove NAME FAULT... | NAME --all",
		Short:             "Undo faults",
		SuggestFor:        []string{"undo"},
		Example:           "  lab fault remove first-node split\n  lab fault remove first-node --all",
		ValidArgsFunction: a.completeFault,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && all == (len(args) == 1) {
				return nil
			}
			return cli.WithCode(cli.Usage, errors.New("say of which scenario, and which faults or --all of them (`lab fault list NAME` shows them)"))
		},
		RunE: func(c *cobra.Command, args []string) error {
			cfg, lab := a.lab()
			what := "undo " + strings.Join(args[1:], ", ")
			if all {
				what = "undo all faults of " + args[0]
			}
			done := cfg.Progress.Step(what)
			err := lab.RemoveFaults(c.Context(), args[0], args[1:]...)
			done(err)
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "undo every fault of the scenario")
	return c
}

func newFaultKinds(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "kinds",
		Short: "List the kinds of faults, what each strikes and what it takes",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return cli.JSON(a.Out, fault.Kinds())
			}
			return a.showKinds(fault.Kinds())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// showKinds lists kinds of faults under what they strike; what one takes stands
// below it, so that all fits on a terminal.
func (a *app) showKinds(kinds []fault.Form) error {
	var rows [][]string
	for i, k := range kinds {
		if i == 0 || !slices.Equal(k.On, kinds[i-1].On) {
			rows = append(rows, []string{struckBy(k.On), ""})
		}
		rows = append(rows, []string{"  " + string(k.Kind), k.About})
		if takes := takenBy(k); takes != "" {
			rows = append(rows, []string{"", takes})
		}
	}
	return cli.Table(a.Out, []string{"KIND", "WHAT IT DOES, AND WHAT IT TAKES"}, rows)
}

func struckBy(on []fault.TargetKind) string {
	if len(on) == 0 {
		return "the world"
	}
	words := make([]string, len(on))
	for i, t := range on {
		words[i] = string(t)
	}
	return strings.Join(words, ", ")
}

func takenBy(k fault.Form) string {
	var words []string
	for _, key := range k.Needs {
		words = append(words, "--"+key)
	}
	for _, key := range k.Takes {
		if key == "how" {
			key += fmt.Sprintf(" %s", strings.Join(howsOf(k), "|"))
		}
		words = append(words, "[--"+key+"]")
	}
	return strings.Join(words, " ")
}

func howsOf(k fault.Form) (words []string) {
	for _, h := range k.Hows {
		words = append(words, string(h))
	}
	return words
}

// completeFaultAdd offers a scenario, a kind, and what that kind strikes.
func (a *app) completeFaultAdd(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		words = a.raisedNames()
	case len(args) == 1:
		for _, k := range fault.Kinds() {
			words = append(words, string(k.Kind)+"\t"+k.About)
		}
	default:
		form, _ := fault.FormOf(fault.Kind(args[1]))
		if r, err := a.completing().Record(args[0]); err == nil {
			words = fault.Candidates(form, r.Plan.World.Underlay)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeFault offers a scenario, and then its faults that are not named yet.
func (a *app) completeFault(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.raisedNames(), cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := a.completing().Faults(args[0])
	for _, f := range all {
		if !slices.Contains(args[1:], f.Name) {
			words = append(words, f.Name+"\t"+f.Fault.String())
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
