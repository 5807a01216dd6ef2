package libvirt

import (
	"encoding/binary"
	"net"
	"sync"
)

// opening is a connection on which a session is being opened, and then is open.
// It can be closed at any moment. The library cannot bear to hear of the end of
// its connection after it has read the last answer that it waited for and before
// it has said that the session is open: then it has not made yet what it would
// close. So a reader hears of an end while a question is unanswered, and else once
// the session is open or the library itself has closed the connection.
type opening struct {
	net.Conn

	mu         sync.Mutex
	settled    sync.Cond // of mu: what a reader waits for has changed
	over       bool      // the session is open, or the library has given it up
	unanswered int       // questions
	length     []byte    // of the answer that is being read, its first bytes
	left       int       // bytes of it that are still to come, once length is whole
}

func newOpening(conn net.Conn) *opening {
	o := &opening{Conn: conn}
	o.settled.L = &o.mu
	return o
}

// opened ends the opening: from now on o is its connection.
func (o *opening) opened() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.settled.Broadcast()
}

// Close is the library's: it gives the session up.
func (o *opening) Close() error {
	o.opened()
	return o.Conn.Close()
}

// Write sends one question at a time while the session is being opened.
func (o *opening) Write(b []byte) (int, error) {
	o.mu.Lock()
	o.unanswered++
	o.settled.Broadcast()
	o.mu.Unlock()
	return o.Conn.Write(b)
}

func (o *opening) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return n, err
	}
	o.answered(b[:n])
	for err != nil && o.unanswered == 0 && !o.over {
		o.settled.Wait()
	}
	return n, err
}

// answered counts the answers that end in b. Each begins with its length in bytes,
// 4 for the length included: https://libvirt.org/kbase/internals/rpc.html.
func (o *opening) answered(b []byte) {
	for len(b) > 0 {
		if len(o.length) < 4 {
			o.length, b = append(o.length, b[0]), b[1:]
			if len(o.length) == 4 {
				o.left = max(0, int(binary.BigEndian.Uint32(o.length))-len(o.length))
			}
			continue
		}
		n := min(o.left, len(b))
		o.left, b = o.left-n, b[n:]
		if o.left == 0 {
			o.length = o.length[:0]
			o.unanswered--
		}
	}
}
