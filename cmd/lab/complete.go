package main

import (
	"slices"

	"github.com/spf13/cobra"

	"mesh/lab/lifecycle"
	"mesh/scenarios"
)

// completeShipped offers the scenarios that ship with the lab, and files, for the
// first n arguments or, below zero, for all.
func completeShipped(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return without(scenarios.Names(), args), cobra.ShellCompDirectiveDefault
	}
}

// completeRaised offers the scenarios that are raised, for the first n arguments
// or, below zero, for all.
func (a *app) completeRaised(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return without(a.raisedNames(), args), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMachine offers a scenario, and then a machine of it.
func (a *app) completeMachine(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		words = a.raisedNames()
	case 1:
		words = a.machineNames(args[0])
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeCommand offers a scenario, a machine, and then what the shell offers.
func (a *app) completeCommand(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeMachine(c, args, word)
}

// completeRemote offers machines as the beginnings of files on them, and files.
func (a *app) completeRemote(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range a.raisedNames() {
		for _, m := range a.machineNames(name) {
			words = append(words, name+":"+m+":/")
		}
	}
	return words, cobra.ShellCompDirectiveNoSpace
}

// without leaves out what was said already.
func without(words, said []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(said, w) })
}

// machineNames is what completion can offer of a scenario.
func (a *app) machineNames(name string) (words []string) {
	r, err := a.completing().Record(name)
	if err != nil {
		return nil
	}
	for _, m := range r.Plan.Machines {
		words = append(words, m.Name)
	}
	return words
}

// raisedNames is what completion can offer; nothing where the store cannot be read.
func (a *app) raisedNames() []string {
	names, _ := a.completing().Names()
	return names
}

// completing is the lab for completion, which runs before any command does.
func (a *app) completing() *lifecycle.Lab {
	_ = a.absolute()
	_, lab := a.lab()
	return lab
}
