// Package snapshot takes snapshots of whole raised scenarios, with memory, at
// one consistent cut, and makes scenarios of them again: in place of the one
// that they were taken of, or beside it.
//
// A snapshot is a directory STORE/snapshots/SCENARIO/NAME with the memory of
// each machine, the packages that the scenario was offered, and a manifest. The
// manifest is written last; without one there is no snapshot, and what lies
// there is swept. Disks are not copied: a snapshot names frozen layers of
// lifecycle's store of layers. Nothing in a manifest or in a layer names a path
// of the lab machine.
//
// lab/lifecycle owns run records, machines' ends and layers; this package tells
// it what is about to be done, and does it. Only cmd/lab and lab/archive import it.
package snapshot
