package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/verify"
)

func newVerify(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Find out whether this machine can do what a scenario needs",
		Long: `Find out whether this machine can do what a scenario needs, by doing each
thing, small, and undoing it. Nothing stays.

A check is "ok", "missing" if a scenario needs it, "optional" if one can do
without, or "unchecked" where there is nothing to do it with: those of a whole
guest want a warm image, none is booted for them. The exit code is 4 when
something is missing; what to do about each is one line.`,
		Example: "  lab verify\n  lab verify --json",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.verify(c.Context(), asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// verify does every check and shows what came of it.
func (a *app) verify(ctx context.Context, asJSON bool) error {
	report := func(verify.Result) {}
	if !asJSON {
		narrated := cli.NewProgress(a.Err)
		report = func(r verify.Result) { narrated.Note("%s: %s", r.Check, r.Verdict) }
	}
	_, lab := a.lab()
	// All labs of a machine share its daemon, as newApp says.
	cfg := verify.Config{Store: a.store, Layer: lab.Layer, Runtime: defaultRuntime, UID: os.Geteuid(), Keeper: thisProgram()}
	results, err := verify.Run(ctx, cfg, report)
	if err != nil {
		return err
	}
	return a.showVerified(results, asJSON)
}

// verified is the answer of `lab verify --json`.
type verified struct {
	OK     bool            `json:"ok"`
	Checks []verify.Result `json:"checks"`
}

// showVerified prints the answer; its error carries the remedies and the exit code.
func (a *app) showVerified(results []verify.Result, asJSON bool) error {
	if asJSON {
		if err := cli.JSON(a.Out, verified{verify.Able(results), results}); err != nil {
			return err
		}
	} else {
		var rows [][]string
		for _, r := range results {
			rows = append(rows, []string{r.Check, string(r.Verdict), fmt.Sprintf("%.1f s", r.Took), r.Seen})
		}
		if err := cli.Table(a.Out, []string{"CHECK", "VERDICT", "TOOK", "SEEN"}, rows); err != nil {
			return err
		}
	}
	var missing, remedies []string
	for _, r := range results {
		if r.Verdict == verify.Missing {
			missing = append(missing, r.Check)
		}
		if r.Remedy != "" {
			remedies = append(remedies, fmt.Sprintf("  %s: %s", r.Check, r.Remedy))
		}
	}
	next := strings.Join(remedies, "\n")
	if len(missing) == 0 {
		if next != "" && !asJSON {
			fmt.Fprintln(a.Err, "nothing that a scenario needs is missing; what could be had besides:\n"+next)
		}
		return nil
	}
	return cli.WithCode(cli.Prerequisite, errors.New("this machine cannot do what a scenario needs, missing: "+strings.Join(missing, ", ")+"\n"+next+
		"\n  `lab install` installs all packages that are lacking"))
}
