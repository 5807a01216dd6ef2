package main

import (
	"os"

	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine/libvirt"
	"mesh/lab/volatile"
)

// newApp stands on this machine.
func newApp(s cli.Streams) *app {
	return &app{
		Streams: s, ports: realPorts, images: realImages, way: realWay, here: realHere{},
		describe: libvirt.New().Description, newRun: randomRun,
	}
}

func realPorts(a *app) lifecycle.Config {
	hypervisor := libvirt.New()
	machines := volatile.NewMachines(hypervisor, hypervisor, lifecycle.LayersIn(a.store), a.runtime)
	return lifecycle.Config{
		// All labs of a machine share its daemon, wherever else they keep things.
		Daemon:     libvirt.NewKeptDaemon(defaultRuntime, thisProgram(), nil),
		Hypervisor: machines,
		Memory:     machines,
		Abuse:      hypervisor,
		DiskFaults: realDiskFaults{},
		World:      realWorld{},
		Guest:      guest.New(machines),
		Disks:      lifecycle.LocalDisks{},
		Volatile:   realVolatile{},
		Computer:   lifecycle.Linux{},
	}
}

func realImages(a *app) imageStore { return images.Store{Dir: a.store} }

// thisProgram keeps the daemon. Where it cannot be found nobody does, and machines
// end more slowly.
func thisProgram() string {
	exe, _ := os.Executable()
	return exe
}
