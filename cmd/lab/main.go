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

// newRoot builds the whole command tree on s and this machine.
func newRoot(s cli.Streams) *cobra.Command { return newRootOf(newApp(s)) }

// newRootOf builds the whole command tree on what a stands on.
func newRootOf(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Raise, look into and destroy meshes of virtual machines",
		Long: `Raise, look into and destroy meshes of virtual machines.

A scenario declares networks, machines and what to place on them. Raised, it is
an isolated address space: nothing of it is visible on this machine's own
networks, and destroying it leaves nothing behind.`,
		Example: `  lab raise pair                       raise two machines
  lab list                             what is raised
  lab exec pair one -- ping -c1 two    run something on one of them
  lab destroy pair                     remove all of it`,
		Version:           version,
		PersistentPreRunE: a.prepare,
	}
	a.flags(root)
	root.AddCommand(
		newVerify(a), newInstall(a),
		newRaise(a), newList(a), newStatus(a), newExec(a), newCopy(a), newConsole(a), newLogs(a),
		newSSH(a), newSSHConfig(a), newForward(a), newCollect(a), newWatch(a), newScreenshot(a),
		newPower(a), newFault(a), newTimeline(a), newRoam(a), newDestroy(a), newReap(a),
		newSnapshot(a), newRestore(a), newFork(a), newExport(a), newImport(a), newMove(a),
		newWorld(), newDisks(), newKeep(),
		newCheck(a), newGraph(a), newSchema(a), newScenario(a),
		newImage(a),
	)
	return root
}
