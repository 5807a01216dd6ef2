package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// width is that of the terminals that help is written for, in columns.
const width = 80

// usage writes how c is used, in cobra's form, flags wrapped to width. It is code,
// since a program with cobra's template in it keeps all methods of all its types,
// which are a seventh of mesh-host.
func usage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if c.Runnable() {
		b.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	if c.HasExample() {
		b.WriteString("\n\nExamples:\n" + c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n\nAvailable Commands:")
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() || below.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", below.NamePadding(), below.Name(), below.Short)
			}
		}
	}
	b.WriteString(listed("Flags", c.LocalFlags()) + listed("Global Flags", c.InheritedFlags()))
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse %q for more information about a command.", c.CommandPath()+" [command] --help")
	}
	b.WriteString("\n")
	_, err := io.WriteString(c.OutOrStderr(), b.String())
	return err
}

func listed(title string, flags interface {
	HasAvailableFlags() bool
	FlagUsagesWrapped(columns int) string
}) string {
	if !flags.HasAvailableFlags() {
		return ""
	}
	return "\n\n" + title + ":\n" + strings.TrimRight(flags.FlagUsagesWrapped(width), " \n")
}
