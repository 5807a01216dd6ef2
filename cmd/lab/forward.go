package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
	"mesh/lab/reach"
	"mesh/lab/underlay"
)

// way leads to one machine inside a scenario.
type way interface {
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	Close() error
}

// realWay is the way of this machine.
func realWay(world string, m underlay.Machine) (way, error) { return reach.Open(world, m) }

func newForward(a *app) *cobra.Command {
	var stdio bool
	c := &cobra.Command{
		Use:   "forward NAME MACHINE [LOCAL:]PORT...",
		Short: "Listen here, and pass what comes on to TCP ports of a machine",
		Long: `Listen on this machine's loopback address only, and pass each connection on to
a TCP port of a machine, until Ctrl-C. The port here is LOCAL, else the same as
there; ":PORT" lets the system choose one.

The way leads from outside of the scenario straight to the machine, past its
segments and routers: nothing inside has to allow it but the machine itself.
Connections come to it from an IPv6 link-local address.`,
		Example: `  lab forward first-node one 8080:80     http://localhost:8080 is its port 80
  lab forward first-node one :5432       some free port here
  lab forward --stdio first-node one 22  one connection, over stdin and stdout`,
		Args:              cli.UsageArgs(cobra.MinimumNArgs(3)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			ports, err := parsePorts(args[2:])
			if err == nil && stdio && (len(ports) > 1 || ports[0].chosen) {
				err = cli.WithCode(cli.Usage, errors.New("--stdio passes one connection on, to one PORT"))
			}
			if err != nil {
				return err
			}
			w, err := a.wayTo(args[0], args[1])
			if err != nil {
				return err
			}
			defer w.Close()
			if stdio {
				return a.forwardStdio(c.Context(), args[0], args[1], w, ports[0].there)
			}
			return a.forward(c.Context(), args[1], w, ports)
		},
	}
	c.Flags().BoolVar(&stdio, "stdio", false, "pass on stdin and stdout instead, as OpenSSH's ProxyCommand wants it")
	return c
}

// wayTo opens the way to a machine that is raised.
func (a *app) wayTo(name, machineName string) (way, error) {
	_, lab := a.lab()
	r, _, err := lab.Find(name, machineName)
	if err != nil {
		return nil, err
	}
	u := r.Plan.World.Underlay
	for _, m := range u.Machines {
		if m.Name != machineName {
			continue
		}
		w, err := a.way(u.Namespace, m)
		if err != nil {
			return nil, unreached(name, machineName, err)
		}
		return w, nil
	}
	return nil, fmt.Errorf("the plan of %s has no place for machine %s", name, machineName)
}

// unreached explains that there is no way to a machine's port.
func unreached(name, machineName string, err error) error {
	e := &lifecycle.Error{
		What: fmt.Sprintf("cannot reach machine %s of %s", machineName, name), Why: err.Error(),
		Next: fmt.Sprintf("`lab status %s` tells whether it runs and answers", name),
		Code: cli.Failed, Cause: err,
	}
	switch {
	case errors.Is(err, reach.ErrRefused):
		e.Next = fmt.Sprintf("`lab exec %s %s -- ss -ltn` lists the ports it listens at", name, machineName)
	case errors.Is(err, reach.ErrSilent):
		e.Next += "; its firewall may keep this one out: `nft list ruleset` on it"
	case errors.Is(err, os.ErrPermission):
		e.Next, e.Code = "the way in needs root: run it as root (sudo)", cli.Prerequisite
	}
	return e
}

// forwarded is one port here and the one there.
type forwarded struct {
	here   uint16 // zero: the system chooses
	there  uint16
	chosen bool // the operator named the port here
}

// parsePorts reads [LOCAL:]PORT words; all problems at once.
func parsePorts(words []string) ([]forwarded, error) {
	var all []forwarded
	var problems []error
	for _, word := range words {
		f, err := parsePort(word)
		all, problems = append(all, f), append(problems, err)
	}
	return all, cli.WithCode(cli.Usage, errors.Join(problems...))
}

func parsePort(word string) (forwarded, error) {
	here, there, both := strings.Cut(word, ":")
	if !both {
		there = word
	}
	far, err := strconv.ParseUint(there, 10, 16)
	near := far
	if both && here == "" {
		near = 0
	} else if both && err == nil {
		near, err = strconv.ParseUint(here, 10, 16)
	}
	if err != nil || far == 0 || near == 0 && here != "" && both {
		return forwarded{}, fmt.Errorf("%q is no [LOCAL:]PORT; ports are numbers from 1 to 65535", word)
	}
	return forwarded{here: uint16(near), there: uint16(far), chosen: both}, nil
}

// forwardStdio passes one connection on; it ends when the machine has said all
// that it had to say.
func (a *app) forwardStdio(ctx context.Context, name, machineName string, w way, port uint16) error {
	conn, err := w.Dial(ctx, port)
	if err != nil {
		return unreached(name, machineName, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// A read of stdin cannot be broken off: this one ends with the process, which
	// is what comes next.
	go func() {
		_, _ = io.Copy(conn, a.In)
		closeWrite(conn)
	}()
	if _, err := io.Copy(a.Out, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("connection with machine %s: %w", machineName, err)
	}
	if ctx.Err() != nil {
		return status(cli.Interrupted)
	}
	return nil
}

// closeWrite says that nothing more comes, where a connection can say so.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// forward listens until ctx ends.
func (a *app) forward(ctx context.Context, machineName string, w way, ports []forwarded) error {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for _, p := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.here))))
		if err != nil {
			return cli.WithCode(cli.Usage, fmt.Errorf("listen at port %d here: %w; choose another one: LOCAL:%d", p.here, err, p.there))
		}
		fmt.Fprintf(a.Out, "%s is port %d of %s\n", l.Addr(), p.there, machineName)
		listeners = append(listeners, l)
	}
	fmt.Fprintln(a.Err, "Ctrl-C ends it")
	defer context.AfterFunc(ctx, func() {
		for _, l := range listeners {
			l.Close()
		}
	})()
	var serving sync.WaitGroup
	for i, l := range listeners {
		serving.Go(func() { a.serve(ctx, l, w, ports[i].there) })
	}
	serving.Wait()
	return status(cli.Interrupted)
}

// serve passes on what comes until the listener is closed.
func (a *app) serve(ctx context.Context, l net.Listener, w way, port uint16) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer conn.Close()
			if err := relay(ctx, conn, w, port); err != nil && ctx.Err() == nil {
				fmt.Fprintf(a.Err, "connection from %s: %v\n", conn.RemoteAddr(), err)
			}
		})
	}
}

// relay passes on both directions until both have ended.
func relay(ctx context.Context, here net.Conn, w way, port uint16) error {
	there, err := w.Dial(ctx, port)
	if err != nil {
		return err
	}
	defer there.Close()
	defer context.AfterFunc(ctx, func() { here.Close(); there.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(there, here)
		closeWrite(there)
	})
	_, _ = io.Copy(here, there)
	closeWrite(here)
	copying.Wait()
	return nil
}
