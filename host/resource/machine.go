// Package resource knows the kinds of resources, one file each: how to look at
// one, compare it with what is wanted, make it so, and take it away again.
//
// Looking, applying and removing may be repeated without harm. Comparing and
// deciding are pure. It declares what each kind asks of the operating system;
// host/system and its fake implement it. host/apply, host/agent and
// cmd/host may import it.
package resource

import (
	"context"

	"mesh/host/system"
)

// Machine is everything the kinds ask of the operating system.
type Machine interface {
	Accounts
	Files
	Directories
	Packages
	Services
	Containers
	Contents
	Programs
}

// Contents keeps what is named by its digest.
type Contents interface {
	HasContent(digest string) bool
	ReadContent(digest string) ([]byte, error)
	KeepContent(data []byte) (digest string, err error)
	PackageFile(digest string) (path string, err error) // where apt takes it for a package
}

// Programs runs a program that only looks, to its end; a status other than 0 is
// an error that says what the program said.
type Programs interface {
	Try(ctx context.Context, argv []string) error
}

// Accounts says which users and groups there are.
type Accounts interface {
	Accounts() (system.Accounts, error)
}
