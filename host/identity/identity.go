// Package identity is the contract for who is who: the node's key, the plane's
// link key and its pin, the key declarations are signed with, and the token
// that carries a mesh's address and secret to a machine.
//
// It is pure: time and randomness are arguments. Secret values redact
// themselves in String, GoString, Format and LogValue; the only way to their
// bytes is the method that says so in its name.
package identity
