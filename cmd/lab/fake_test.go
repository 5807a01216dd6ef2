package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"mesh/lab/reach"
	"mesh/lab/underlay"
)

// fakeHere is a machine whose commands print themselves.
type fakeHere struct{}

func (fakeHere) Run(_ context.Context, out io.Writer, command ...string) error {
	_, err := fmt.Fprintln(out, strings.Join(command, " "))
	return err
}

// fakeWay leads to machines where port 7 says each line back and who it is, and
// where nothing listens at any other.
func fakeWay(world string, m underlay.Machine) (way, error) {
	return echoes{world, m.Name}, nil
}

type echoes struct{ world, name string }

func (e echoes) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if port != 7 {
		return nil, fmt.Errorf("port %d: %w", port, reach.ErrRefused)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0") // since a pipe has no half to close
	if err != nil {
		return nil, err
	}
	go func() {
		conn, err := l.Accept()
		l.Close() // not before: whoever is not accepted yet would be reset
		if err != nil {
			return
		}
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintf(conn, "%s: %s\n", e.name, lines.Text())
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		l.Close()
	}
	return conn, err
}

func (echoes) Close() error { return nil }
