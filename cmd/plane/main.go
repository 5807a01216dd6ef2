// Command mesh-plane: see its --help.
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
		Use:     "mesh-plane",
		Short:   "Decide what every node of one mesh holds",
		Version: version,
	}
	o := operator{Streams: s}
	for _, c := range []*cobra.Command{
		o.group("token", "Tokens that admit machines", o.tokenIssue()),
		o.group("node", "Nodes: machines that are enrolled", o.nodeList(), o.nodeShow(), o.nodeRetire(), o.nodeRemove()),
		o.group("host", "The version of mesh-host that every node shall have", o.hostShow(), o.hostSet(), o.hostUnset()),
		o.group("module", "Modules: what can be assigned to a node", o.moduleList()),
		o.assign("assign", "Assign a module to a node", false),
		o.assign("unassign", "Take a module from a node", true),
	} {
		o.asks(c)
		root.AddCommand(c)
	}
	root.AddCommand(newRun(s), newBundle(s), o.config())
	return root
}
