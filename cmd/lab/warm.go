package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/scenario"
)

func newImageWarm(a *app) *cobra.Command {
	var memory string
	var cpus int
	var asJSON bool
	c := &cobra.Command{
		Use:   "warm [IMAGE]",
		Short: "Boot an image once and keep it, for machines to start from there",
		Long: `Boot an image once, without a network, and keep the memory of the machine that
has booted: raises clone their machines from it. A raise makes what it needs by
itself; this makes it ahead, of ` + images.Default + ` unless told otherwise. There is one
for each image, amount of memory and number of processors, for this machine's
QEMU and accelerator.`,
		Args: cli.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			name := images.Default
			if len(args) > 0 {
				name = args[0]
			}
			size := lifecycle.Size{CPUs: cpus}
			var err error
			if size.MemoryBytes, err = scenario.ParseSize(memory); err != nil {
				return cli.WithCode(cli.Usage, fmt.Errorf("--memory: %w", err))
			}
			if cpus < 1 {
				return cli.WithCode(cli.Usage, fmt.Errorf("--cpus: %d is less than one", cpus))
			}
			return a.warm(c.Context(), name, size, asJSON)
		},
	}
	c.Flags().StringVar(&memory, "memory", fmt.Sprintf("%dMiB", scenario.DefaultMemory>>20), "how much memory the machines have")
	c.Flags().IntVar(&cpus, "cpus", scenario.DefaultCPUs, "how many processors the machines have")
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

func (a *app) warm(ctx context.Context, name string, size lifecycle.Size, asJSON bool) error {
	image, err := a.images(a).Get(name)
	if err != nil {
		return err
	}
	_, lab := a.lab()
	w, err := lab.WarmUp(ctx, image, size)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.JSON(a.Out, w)
	}
	_, err = fmt.Fprintf(a.Out, "%s %s stands (%d MiB, made %s)\n", w.Of, w.Digest[:12], w.SizeBytes>>20, w.Made.Format(time.RFC3339))
	return err
}

// warmRow is a warm image in the answer of `lab image list`.
type warmRow struct {
	State string `json:"state"` // warm, or outdated: of an earlier image or ready point, so that no raise uses it
	images.Warm
}

func (r warmRow) line() []string {
	state := fmt.Sprintf("%s: %d MiB, %d CPU, %s", r.State, r.Of.MemoryBytes>>20, r.Of.CPUs, r.Of.Platform.Accelerator)
	return []string{r.Of.Image, state, fmt.Sprintf("%d MiB", r.SizeBytes>>20), r.Made.Format(time.RFC3339), r.Digest[:12]}
}

// warmRows lists warm images, beside the images that there are.
func warmRows(lab *lifecycle.Lab, built []imageRow) ([]warmRow, error) {
	all, err := lab.WarmImages()
	rows := []warmRow{}
	for _, w := range all {
		row := warmRow{State: "outdated", Warm: w}
		of := func(i imageRow) bool { return i.State == "built" && i.Image.Content == w.Of.Content }
		if w.Of.ReadyPoint == lifecycle.ReadyPoint && slices.ContainsFunc(built, of) {
			row.State = "warm"
		}
		rows = append(rows, row)
	}
	return rows, err
}

// shortestDigest is how much of a digest names an image, in hex digits.
const shortestDigest = 8

// removeWarm removes the warm images of an image's name, or the one of a digest.
func (a *app) removeWarm(ctx context.Context, name string) error {
	found, err := a.dropWarm(ctx, func(w images.Warm) bool {
		return w.Of.Image == name || len(name) >= shortestDigest && strings.HasPrefix(w.Digest, name)
	})
	if err == nil && !found {
		fmt.Fprintf(a.Out, "no warm image %s is there (`lab image list`)\n", name)
	}
	return err
}

// dropWarm removes some warm images.
func (a *app) dropWarm(ctx context.Context, which func(images.Warm) bool) (found bool, err error) {
	_, lab := a.lab()
	all, err := lab.WarmImages()
	problems := []error{err}
	for _, w := range all {
		if !which(w) {
			continue
		}
		found = true
		err := lab.RemoveWarm(ctx, w)
		if err == nil {
			fmt.Fprintf(a.Out, "removed %s %s (%d MiB)\n", w.Of, w.Digest[:12], w.SizeBytes>>20)
		}
		problems = append(problems, err)
	}
	return found, errors.Join(problems...)
}
