// Command mesh-host: see its --help.
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
		Use:   "mesh-host",
		Short: "Apply what the plane declared for this machine, and nothing else",
		Long: `mesh-host is the one thing installed on a machine by hand. It applies, it does
not decide: what a machine holds is declared by its plane, signed, and applied
from the machine's own record, whether or not the plane can be reached.

A machine is hosted (a member of no mesh), enrolled (a member whose link to the
plane is up) or disconnected (the same member while the link is down).
` + "`mesh-host status`" + ` says which, offline.`,
		Version: version,
	}
	h := &host{Streams: s}
	root.PersistentFlags().StringVar(&h.state, "state", "/var/lib/mesh-host", "directory of the record that lasts")
	root.PersistentFlags().StringVar(&h.runtime, "runtime", "/run/mesh-host", "directory of what is gone after a reboot")
	root.PersistentFlags().StringVar(&h.program, "program", programPath, "where this program is installed")
	root.AddCommand(h.newEnrol(), h.newReconcile(), h.newPlan(), h.newRun(), h.newStatus(), h.newWhy(), h.newOrphans(), h.newAdopt(), h.newRelease(), h.newAcknowledge(), h.newPurge(), h.newMayRemove(), h.newTrial())
	return root
}
