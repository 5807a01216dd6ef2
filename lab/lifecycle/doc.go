// Package lifecycle raises, watches over and destroys scenarios.
//
// NewPlan says everything that a raise will do; it is pure, and dry runs print
// that very value. A Lab acts on it. Before each step the run record, one file
// for each scenario, says what is about to be made, so that Destroy and Reap can
// remove all of it after a crash at any moment; nothing is ever removed that no
// record names. Reading (Status, List, Abandoned) changes nothing.
//
// The package decides and keeps order; hypervisor, world, images and guests are
// behind the interfaces of ports.go. Only lab/snapshot,
// lab/archive, lab/evidence and cmd/lab import it.
package lifecycle
