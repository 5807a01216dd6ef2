// Command lab: see its --help.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

// version is set by the linker (-X main.version=…).
var version = "0.0.0-dev"

func main() {
	s := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Run(newRoot(s), s, os.Args[1:]))
}

// newRoot builds the whole command tree on s.
func newRoot(s cli.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:     "lab",
		Short:   "Raise, look into and destroy meshes of virtual machines",
		Version: version,
	}
	root.AddCommand(
		newWorld(),
	)
	return root
}
