// Package resource knows the kinds of resources, one file each: how to look at
// one, compare it with what is wanted, make it so, and take it away again.
//
// It declares what each kind asks of the operating system; host/system and its
// fake implement it. host/apply may import it.
package resource

// Machine is everything the kinds ask of the operating system.
type Machine interface{}
