package libvirt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mesh/lab/machine/libvirt"
)

// answering answers as a libvirt daemon does whoever connects to its socket, but
// only so many questions; then it calls silent, and says nothing more. It hangs up
// after that many bytes, if they are above zero.
func answering(t *testing.T, answers, hangUpAfter int, silent func()) (socket string) {
	t.Helper()
	socket, end := sessions(t, func(conn net.Conn) { answer(conn, answers, hangUpAfter, silent, func(uint32) {}) })
	t.Cleanup(end)
	return socket
}

// sessions has session run for each connection with a socket until end, which
// waits for all of them.
func sessions(t *testing.T, session func(net.Conn)) (socket string, end func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { session(conn) })
		}
	})
	return socket, func() {
		_ = l.Close()
		serving.Wait()
	}
}

// question reads a question to its end, and gives its header; false when there is
// no other one.
func question(conn net.Conn) (header []byte, asked bool) {
	header = make([]byte, 28)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, false
	}
	_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header))-28)
	return header, err == nil
}

// replies are what a daemon answers, by procedure, beside nothing (libvirt's
// remote_protocol.x): which kinds of authentication there are, one, none; a domain
// named "one"; a callback's number.
var replies = map[uint32][]byte{
	66:  {0, 0, 0, 1, 0, 0, 0, 0},
	23:  append([]byte{0, 0, 0, 3, 'o', 'n', 'e', 0}, make([]byte, 20)...),
	316: {0, 0, 0, 7},
}

// deregister is the procedure that ends a subscription to events.
const deregister = 317

// answer is one session; asked hears of each procedure.
func answer(conn net.Conn, answers, hangUpAfter int, silent func(), asked func(procedure uint32)) {
	defer conn.Close()
	for {
		header, ok := question(conn)
		if !ok {
			return
		}
		procedure := binary.BigEndian.Uint32(header[12:])
		asked(procedure)
		if answers == 0 {
			silent()
			continue
		}
		answers--
		binary.BigEndian.PutUint32(header[16:], 1) // a reply
		reply := append(header, replies[procedure]...)
		binary.BigEndian.PutUint32(reply, uint32(len(reply)))
		for _, b := range reply { // as slowly as can be
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			if hangUpAfter--; hangUpAfter == 0 {
				return
			}
		}
	}
}

// A session that is being opened ends with its caller's patience, wherever the
// daemon falls silent; nothing runs on.
func TestOpeningIsGivenUp(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	enough := errors.New("enough")
	for answers := range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		socket := answering(t, answers, 0, func() { cancel(enough) })
		begun := time.Now()
		if err := libvirt.Open(ctx, socket, time.Minute); !errors.Is(err, enough) {
			t.Errorf("silent after %d answers: %v", answers, err)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("silent after %d answers: it took %s", answers, took)
		}
		cancel(nil)
	}
}

// A daemon that does not answer is given up after a while.
func TestOpeningHasALimit(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	err := libvirt.Open(t.Context(), answering(t, 1, 0, func() {}), 50*time.Millisecond)
	if err == nil || err.Error() != "the daemon does not answer within 50ms" {
		t.Errorf("%v", err)
	}
}

// A daemon that hangs up after any byte is an error, or is met once the session
// is open; so is a caller that gives up at any moment.
func TestOpeningBearsAnyEnd(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	const bytes = 36 + 28 // of both answers
	for n := 1; n <= bytes; n++ {
		err := libvirt.Open(t.Context(), answering(t, 2, n, func() {}), time.Minute)
		if (err == nil) != (n == bytes) {
			t.Errorf("hung up after %d of %d bytes: %v", n, bytes, err)
		}
	}
	socket := answering(t, -1, 0, func() {})
	for n := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*5*time.Microsecond)
		if err := libvirt.Open(ctx, socket, time.Minute); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up after %d times 5 µs: %v", n, err)
		}
		cancel()
	}
}

// Whoever gives up waiting hangs up, and asks for nothing more: daemons have
// crashed on a subscription that ended with its session.
func TestWaitingIsGivenUp(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	socket := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var asked []uint32
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		answer(conn, -1, 0, func() {}, func(procedure uint32) {
			if asked = append(asked, procedure); procedure == 23 { // the last question of all
				time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
			}
		})
	})
	if _, err := libvirt.At(socket).Wait(ctx, "one"); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	_ = l.Close()
	serving.Wait()
	if slices.Contains(asked, deregister) || len(asked) < 4 {
		t.Errorf("asked for %d", asked)
	}
}
