// Command shop is what the containers of the specs run: it answers every
// connection with what it was given, but for its secret, of which it says the
// digest.
package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
)

func main() {
	secret, err := os.ReadFile("/run/secrets/key")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(c, "%q %q %x\n", os.Args[1:], os.Getenv("GREETING"), sha256.Sum256(secret))
		c.Close()
	}
}
