package main

import (
	"github.com/spf13/cobra"

	"mesh/lab/lifecycle"
	"mesh/scenarios"
)

// completeShipped offers the scenarios that ship with the lab, and files.
func completeShipped(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return scenarios.Names(), cobra.ShellCompDirectiveDefault
}

// completeRaised offers the scenarios that are raised, for the first n arguments
// or, below zero, for all.
func (a *app) completeRaised(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.raisedNames(), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMachine offers a scenario, and then a machine of it.
func (a *app) completeMachine(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		words = a.raisedNames()
	case 1:
		if r, err := a.completing().Record(args[0]); err == nil {
			for _, m := range r.Plan.Machines {
				words = append(words, m.Name)
			}
		}
	default:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return words, cobra.ShellCompDirectiveNoFileComp
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
