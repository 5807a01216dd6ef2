// Package resource knows the kinds of resources, one file each: how to look at
// one, compare it with what is wanted, make it so, and take it away again.
//
// Looking, applying and removing may be repeated without harm. Comparing and
// deciding are pure. It declares what each kind asks of the operating system;
// host/system and its fake implement it. host/apply may import it.
package resource

import "mesh/host/system"

// Machine is everything the kinds ask of the operating system.
type Machine interface {
	Accounts
	Files
	Directories
	Packages
	Services
}

// Accounts says which users and groups there are.
type Accounts interface {
	Accounts() (system.Accounts, error)
}
