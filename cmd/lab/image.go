package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
)

// newImage has the commands for machine images.
func newImage(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Build, list and remove machine images",
		Long: `Build, list and remove machine images.

An image is made of a recipe once, from the archive that this machine's apt is
configured with, and found again by the recipe's digest. Its disk is only ever
read: machines write to disks of their own on top of it. A warm image is the
memory of a machine that was booted from one, for others to start from.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newImageBuild(a), newImageWarm(a), newImageList(a), newImageRemove(a))
	return c
}

func newImageBuild(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "build [IMAGE]",
		Short: "Build an image if it is not there (" + images.Default + " unless named)",
		Args:  cli.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			name := images.Default
			if len(args) > 0 {
				name = args[0]
			}
			image, err := images.Store{Dir: a.store}.Build(c.Context(), name, cli.NewProgress(a.Err))
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, image)
			}
			fmt.Fprintf(a.Out, "%s stands in %s\n", image.Name, filepath.Dir(image.Disk))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

// imageRow is a recipe or an image in the answer of `lab image list`.
type imageRow struct {
	Name  string        `json:"name"`
	State string        `json:"state"` // built, not built, outdated (of an earlier recipe)
	Image *images.Image `json:"image"` // null where there is none
}

func newImageList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List recipes, the images built of them, and warm images",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := imageRows(images.Store{Dir: a.store})
			if err != nil {
				return err
			}
			_, lab := a.lab()
			warm, err := warmRows(lab, rows)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, map[string]any{"images": rows, "warm": warm})
			}
			var lines [][]string
			for _, row := range rows {
				line := []string{row.Name, row.State, "", "", ""}
				if i := row.Image; i != nil {
					line = []string{row.Name, row.State, fmt.Sprintf("%d MiB", i.SizeBytes>>20), i.Built.Format(time.RFC3339), i.Digest[:12]}
				}
				lines = append(lines, line)
			}
			for _, row := range warm {
				lines = append(lines, row.line())
			}
			return cli.Table(a.Out, []string{"NAME", "STATE", "SIZE", "BUILT", "DIGEST"}, lines)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return c
}

// imageRows lists every recipe, and behind them images that belong to none as it is now.
func imageRows(s images.Store) ([]imageRow, error) {
	known, err := s.Known()
	if err != nil {
		return nil, err
	}
	built, err := s.List()
	if err != nil {
		return nil, err
	}
	of := map[string]*images.Image{}
	for i := range built {
		of[built[i].Digest] = &built[i]
	}
	var rows []imageRow
	for _, r := range known {
		row := imageRow{Name: r.Name, State: "not built", Image: of[r.Digest()]}
		if row.Image != nil {
			row.State = "built"
			delete(of, r.Digest())
		}
		rows = append(rows, row)
	}
	for i := range built {
		if image := &built[i]; of[image.Digest] != nil {
			rows = append(rows, imageRow{Name: image.Name, State: "outdated", Image: image})
		}
	}
	return rows, nil
}

func newImageRemove(a *app) *cobra.Command {
	var warmOnly bool
	c := &cobra.Command{
		Use:   "remove IMAGE",
		Short: "Remove images of that name that are not in use, and warm ones",
		Long: `Remove every image of that name, and its warm images, unless scenarios or
snapshots stand on it.

With --warm only warm images are removed: those of the name, or the one whose
digest begins with IMAGE. Machines that were started from one run on.`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if warmOnly {
				return a.removeWarm(c.Context(), args[0])
			}
			return a.removeImage(c.Context(), args[0])
		},
	}
	c.Flags().BoolVar(&warmOnly, "warm", false, "remove warm images only")
	return c
}

func (a *app) removeImage(ctx context.Context, name string) error {
	_, lab := a.lab()
	removed, err := images.Store{Dir: a.store}.Remove(ctx, name, func(image images.Image) ([]string, error) {
		users, err := imageUsers(lab, image)
		kept, broken := a.snapshotsOn(image)
		return append(users, kept...), errors.Join(err, broken)
	})
	for _, image := range removed {
		fmt.Fprintf(a.Out, "removed %s %s (%d MiB)\n", image.Name, image.Digest[:12], image.SizeBytes>>20)
	}
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		fmt.Fprintf(a.Out, "no image %s is there (known recipes: %s)\n", name, strings.Join(images.Store{}.Names(), ", "))
	}
	_, err = a.dropWarm(ctx, func(w images.Warm) bool {
		return slices.ContainsFunc(removed, func(i images.Image) bool { return i.Content == w.Of.Content })
	})
	return err
}

// imageUsers lists the scenarios with a machine whose disk stands on the image.
func imageUsers(lab *lifecycle.Lab, image images.Image) ([]string, error) {
	names, err := lab.Names()
	if err != nil {
		return nil, err
	}
	var users []string
	for _, name := range names {
		record, err := lab.Record(name)
		if errors.Is(err, lifecycle.ErrAbsent) {
			continue // destroyed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(record.Plan.Machines, func(m lifecycle.Machine) bool { return m.Base == image.Disk }) {
			users = append(users, name)
		}
	}
	return users, nil
}
