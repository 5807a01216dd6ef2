package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/underlay"
)

// raiseFlags are what `lab raise` can be told.
type raiseFlags struct {
	as, accelerator, packages                           string
	dryRun, json, requireKVM, keep, noPlace, wait, cold bool
}

func newRaise(a *app) *cobra.Command {
	var f raiseFlags
	c := &cobra.Command{
		Use:   "raise SCENARIO",
		Short: "Raise a scenario: network, machines, and what is placed on them",
		Long: `Raise a scenario: its network, its machines, and what is placed on them.

SCENARIO is the name of one that ships with the lab, or the path of a file. It
stands until it is destroyed, whatever happens to this command's terminal. If
raising fails or is interrupted (Ctrl-C), everything is undone. Where it would
not fit into the memory that is free, less what is promised to others, nothing
is made.`,
		Example: `  lab raise pair                       two machines on one network
  lab raise ./mine.yaml --dry-run      what would be made, and nothing else
  lab raise first-node --as a          beside another, with its addresses inside
  lab raise first-node --keep          if it fails, leave what stands`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeShipped(1),
		RunE:              func(c *cobra.Command, args []string) error { return a.raise(c, args[0], f) },
	}
	c.Flags().StringVar(&f.as, "as", "", "raise it under this name (default: the scenario's own)")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would be done, and do nothing")
	c.Flags().BoolVar(&f.json, "json", false, "print the result as JSON")
	c.Flags().StringVar(&f.accelerator, "accelerator", lifecycle.Auto, "auto, kvm or tcg; kvm fails where KVM does not work")
	c.Flags().BoolVar(&f.requireKVM, "require-kvm", false, "the same as --accelerator kvm")
	c.Flags().BoolVar(&f.keep, "keep", false, "if it fails or is interrupted, leave what stands; the same raise then goes on")
	c.Flags().BoolVar(&f.wait, "wait", false, "where too little memory or disk is free now, wait for it, in line with others")
	c.Flags().BoolVar(&f.cold, "cold", false, "boot every machine, instead of cloning it from a warm image")
	c.Flags().BoolVar(&f.noPlace, "no-place", false, "leave out the scenario's placement")
	c.Flags().StringVar(&f.packages, "packages", "", "directory of .debs, and of container images (NAME.oci.tar), that machines can install (default: dist, if it has any)")
	// They fail only for flags that are not there.
	_ = c.RegisterFlagCompletionFunc("accelerator", cobra.FixedCompletions([]string{lifecycle.Auto, "kvm", "tcg"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagDirname("packages")
	return c
}

func (a *app) raise(c *cobra.Command, source string, f raiseFlags) error {
	if f.requireKVM {
		if c.Flags().Changed("accelerator") && f.accelerator != "kvm" {
			return cli.WithCode(cli.Usage, fmt.Errorf("--require-kvm and --accelerator %s contradict each other", f.accelerator))
		}
		f.accelerator = "kvm"
	}
	doc, err := openScenario(source)
	if err != nil {
		return err
	}
	_, lab := a.lab()
	plan, err := a.plan(lab, doc, f)
	if err != nil {
		return err
	}
	if f.dryRun {
		if f.json {
			return cli.JSON(a.Out, plan)
		}
		_, err := fmt.Fprint(a.Out, plan)
		return err
	}
	if _, err := lab.Raise(c.Context(), plan, lifecycle.RaiseOptions{Keep: f.keep, Wait: f.wait, Files: doc.files}); err != nil {
		return err
	}
	s, err := lab.Status(c.Context(), plan.Name)
	if err != nil {
		return err
	}
	if f.json {
		return cli.JSON(a.Out, s)
	}
	return a.showRaised(s)
}

// plan puts together everything that a raise needs to know, and reports what is
// wrong with the scenario here, all of it.
func (a *app) plan(lab *lifecycle.Lab, doc document, f raiseFlags) (lifecycle.Plan, error) {
	name := f.as
	if name == "" {
		name = doc.scenario.Name
	}
	if err := lifecycle.CheckName(name); err != nil {
		return lifecycle.Plan{}, err
	}
	built, err := a.imagesOf(doc)
	if err != nil {
		return lifecycle.Plan{}, err
	}
	packages, err := packagesDir(f.packages)
	if err != nil {
		return lifecycle.Plan{}, err
	}
	// Going on with what was kept is going on with its run.
	run := a.newRun()
	if old, err := lab.Record(name); err == nil && old.Phase == lifecycle.Partial {
		run = old.Plan.Run
	}
	u, err := underlay.Plan(doc.scenario, run)
	if err != nil {
		return lifecycle.Plan{}, cli.WithCode(cli.Usage, err)
	}
	return lifecycle.NewPlan(doc.scenario, *u, lifecycle.Options{
		Name: name, Source: doc.source, Run: run, Accelerator: f.accelerator, Images: built,
		Directory: lab.Directory(name), Layers: lab.Layers(), Runtime: lab.RuntimeOf(run), Packages: packages, NoPlace: f.noPlace, Cold: f.cold,
	})
}

// imagesOf finds the images of a scenario, and checks what it names beside them.
func (a *app) imagesOf(doc document) (map[string]images.Image, error) {
	store := a.images(a)
	problems := append(doc.scenario.CheckImages(store.Names()), doc.scenario.CheckFiles(doc.files)...)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	built := map[string]images.Image{}
	var missing []error
	for _, m := range doc.scenario.Machines {
		if _, seen := built[m.Image]; seen {
			continue
		}
		image, err := store.Get(m.Image)
		missing = append(missing, err)
		built[m.Image] = image
	}
	return built, errors.Join(missing...)
}

// packagesDir is the directory whose .debs machines can install; empty for none.
func packagesDir(asked string) (string, error) {
	dir := asked
	if dir == "" {
		dir = "dist"
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) > 0 {
		return filepath.Abs(dir)
	}
	if asked == "" {
		return "", nil
	}
	if info, err := os.Stat(asked); err != nil || !info.IsDir() {
		return "", cli.WithCode(cli.Usage, fmt.Errorf("--packages %s: it is no directory", asked))
	}
	return "", cli.WithCode(cli.Usage, fmt.Errorf("--packages %s: it holds no .deb; `make packages` builds the project's into dist", asked))
}
