// Package cli is what the three programs share towards people: streams, exit
// codes, signals, JSON, tables and progress. Only cmd/* imports it.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Streams are a program's connections to its caller: the answer goes to Out,
// narration to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Run executes root with args and returns the exit code. SIGINT and SIGTERM
// cancel the context of the command; a second one ends the process at once. An
// error goes to s.Err, its exit code is Code's, but for two: what cobra refuses
// before a command begins (unknown commands and flags, too many or too few
// arguments) is Usage, and what merely failed after a signal is Interrupted.
//
// Run completes the command tree, which therefore runs once only: a command
// that only holds others shows its help, and refuses what is none of them.
func Run(root *cobra.Command, s Streams, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect

	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(usage)
	began := false
	complete(root, &began)
	completeHelp(root)

	ran, err := root.ExecuteContextC(ctx)
	if err != nil && !began && Code(err) == Failed {
		err = WithCode(Usage, fmt.Errorf("%w (see `%s --help`)", err, ran.CommandPath()))
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(s.Err, "%s: %v\n", root.Name(), err)
	}
	if code := Code(err); code != Failed || ctx.Err() == nil {
		return code
	}
	return Interrupted
}

// complete makes c and what is below it note that one of them began, and gives
// those that only hold others something to run.
func complete(c *cobra.Command, began *bool) {
	// The hooks before RunE come before cobra has looked at every flag.
	for _, hook := range []*func(*cobra.Command, []string) error{&c.PersistentPreRunE, &c.PreRunE} {
		if run := *hook; run != nil {
			*hook = func(c *cobra.Command, args []string) error {
				err := run(c, args)
				*began = err != nil
				return err
			}
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*began = true
			return run(c, args)
		}
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = holds
	}
	for _, below := range c.Commands() {
		complete(below, began)
	}
}

// completeHelp makes cobra's own command refuse what there is no help about: it
// would show the help of what is above that.
func completeHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
			about, unknown, err := root.Find(args)
			if err == nil && len(unknown) == 0 {
				about.InitDefaultHelpFlag() // which it lists only then
				about.InitDefaultVersionFlag()
				return about.Help()
			}
			if err == nil {
				err = holds(about, unknown)
			}
			return WithCode(Usage, fmt.Errorf("%w (see `%s --help`)", err, about.CommandPath()))
		}
	}
}

// holds runs a command that only holds others.
func holds(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	advice := ""
	c.SuggestionsMinimumDistance = 2 // cobra's own, which it sets for others only
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		advice = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), advice)
}

// UsageArgs makes a cobra argument check name the usage of its command. Run
// gives its error the exit code.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return WithCode(Usage, fmt.Errorf("%w (usage: %s)", err, c.UseLine()))
		}
		return nil
	}
}
