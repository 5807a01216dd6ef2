package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"mesh/cmd/internal/cli"
	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

// leave is Ctrl-], which ends a sitting.
const leave = 0x1d

// knockEvery is how often a machine that ended is looked for.
const knockEvery = 250 * time.Millisecond

// sit connects the terminal with a machine's console, after the last lines that
// are recorded of it, until Ctrl-]. While the machine is off it waits for it.
func (a *app) sit(ctx context.Context, name, machineName string, lines int) error {
	_, lab := a.lab()
	_, m, err := lab.Find(name, machineName)
	if err != nil {
		return err
	}
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return cli.WithCode(cli.Usage, fmt.Errorf("a console needs a terminal; `lab console %s %s --log` prints what was recorded", name, m.Name))
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.Spec.ConsoleSock)
	if err != nil {
		return silent(name, m.Name, err)
	}
	// What would end the program at once would leave the terminal as it is.
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer cancel()
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		conn.Close()
		return fmt.Errorf("set up the terminal: %w", err)
	}
	defer fmt.Fprint(a.Err, "\r\n")
	defer term.Restore(int(in.Fd()), before)
	a.showLast(m, lines)
	say := func(format string, args ...any) {
		fmt.Fprintf(a.Err, "\r\n[%s; Ctrl-] leaves]\r\n", fmt.Sprintf(format, args...))
	}
	say("console of %s in %s", m.Name, name)
	for {
		left, err := a.connect(ctx, in, conn)
		if left || err != nil {
			return err
		}
		say("%s ended; this waits until it is back", m.Name)
		if conn, err = a.await(ctx, in, lab, name, m.Name); conn == nil {
			return err
		}
		say("%s is back", m.Name)
	}
}

// showLast shows the end of what is recorded of a console, as a terminal would.
func (a *app) showLast(m lifecycle.Machine, lines int) {
	f, err := os.Open(m.Spec.ConsoleLog)
	if err != nil {
		return // nothing yet
	}
	defer f.Close()
	if text, err := guest.Tail(f, lines); err == nil && text != "" {
		fmt.Fprint(a.Out, strings.ReplaceAll(text, "\n", "\r\n"))
	}
}

// connect passes on both directions until somebody leaves, which it tells, or
// the other end closes.
func (a *app) connect(ctx context.Context, in *os.File, conn net.Conn) (left bool, err error) {
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() {
		defer close(ended)
		_, _ = io.Copy(a.Out, conn) // ends with the connection
	})
	left, err = typed(ctx, in, conn, ended)
	conn.Close()
	copying.Wait()
	return left, err
}

// await waits until a machine's console can be connected with again; nil when
// somebody leaves, and with an error when the scenario is gone.
func (a *app) await(ctx context.Context, in *os.File, lab *lifecycle.Lab, name, machineName string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conn net.Conn
	var gone error
	done := make(chan struct{})
	var knocking sync.WaitGroup
	knocking.Go(func() {
		defer close(done)
		conn, gone = knock(ctx, lab, name, machineName)
	})
	left, err := typed(ctx, in, io.Discard, done)
	cancel()
	knocking.Wait()
	if left || err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, err
	}
	return conn, gone
}

// knock dials a machine's console until it answers.
func knock(ctx context.Context, lab *lifecycle.Lab, name, machineName string) (net.Conn, error) {
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	for {
		_, m, err := lab.Find(name, machineName) // it may be another one now
		if err != nil {
			return nil, err
		}
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.Spec.ConsoleSock); err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// typed passes on what is typed until Ctrl-], which it tells, or until ended or
// ctx is done.
func typed(ctx context.Context, in *os.File, to io.Writer, ended <-chan struct{}) (left bool, err error) {
	buf := make([]byte, 256)
	for {
		select {
		case <-ended:
			return false, nil
		case <-ctx.Done():
			return false, status(cli.Interrupted)
		default:
		}
		// A read of a terminal cannot be broken off, so none is begun before there is something.
		poll := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 100); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("wait for the terminal: %w", err)
		}
		n, err := in.Read(buf)
		at := bytes.IndexByte(buf[:n], leave)
		if at >= 0 {
			n = at
		}
		if _, err := to.Write(buf[:n]); err != nil && at < 0 {
			continue // the other end closed: ended tells
		}
		if at >= 0 || errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the terminal: %w", err)
		}
	}
}
