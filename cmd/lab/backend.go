package main

import (
	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine/libvirt"
)

// newApp stands on this machine.
func newApp(s cli.Streams) *app {
	return &app{Streams: s, ports: realPorts, images: realImages, way: realWay, here: realHere{}, newRun: randomRun}
}

func realPorts(*app) lifecycle.Config {
	hypervisor := libvirt.New()
	return lifecycle.Config{
		// All labs of a machine share its daemon, wherever else they keep things.
		Daemon:     libvirt.NewDaemon(defaultRuntime, nil),
		Hypervisor: hypervisor,
		Memory:     hypervisor,
		Abuse:      hypervisor,
		World:      realWorld{},
		Guest:      guest.New(hypervisor),
		Disks:      lifecycle.LocalDisks{},
		Computer:   lifecycle.Linux{},
	}
}

func realImages(a *app) imageStore { return images.Store{Dir: a.store} }
