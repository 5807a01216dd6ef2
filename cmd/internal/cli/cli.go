// Package cli is what the three programs share towards people: streams, exit
// codes, signals, JSON, tables and progress. Only cmd/* imports it.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Exit codes of every program.
const (
	OK           = 0   // done
	Failed       = 1   // tried, and failed
	Usage        = 2   // the command line, a document or a configuration is wrong
	Differs      = 3   // what stands differs from what is declared
	Prerequisite = 4   // something the machine must have is missing
	Interrupted  = 130 // SIGINT or SIGTERM
)

// Streams are a program's connections to its caller: the answer goes to Out,
// narration to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Coder is implemented by errors that know their exit code. Packages below cmd
// implement it without importing this package.
type Coder interface{ ExitCode() int }

type coded struct {
	error
	code int
}

func (c coded) ExitCode() int { return c.code }
func (c coded) Unwrap() error { return c.error }

// WithCode gives err an exit code; nil stays nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return coded{err, code}
}

// Code maps an error to an exit code: 0 for nil, its own where a Coder is in
// its chain, 130 when ctx's cause was a signal, 1 otherwise.
func Code(err error) int {
	var c Coder
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.ExitCode()
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Failed
}

// Run executes root with args and returns the exit code. SIGINT and SIGTERM
// cancel the context; a second one ends the process at once.
func Run(root *cobra.Command, s Streams, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return WithCode(Usage, fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath()))
	})
	err := root.ExecuteContext(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "unknown command ") {
		err = WithCode(Usage, err) // cobra has no type for it
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(s.Err, "%s: %v\n", root.Name(), err)
	}
	return Code(err)
}

// UsageArgs makes a cobra argument check answer with exit code 2.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return WithCode(Usage, fmt.Errorf("%w (usage: %s)", err, c.UseLine()))
		}
		return nil
	}
}

// JSON writes v as one indented document with a final newline.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table writes rows under header in aligned columns.
func Table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, cell)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}
