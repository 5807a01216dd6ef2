package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"mesh/lab/machine"
)

// promise is memory that a raised scenario may come to use.
type promise struct {
	name     string
	bytes    int64 // of all its machines at their largest
	resident int64 // in use already, so that it is free no more
}

// lacking is how much memory is missing to promise need beside the others, in
// bytes; zero or less: none. free is what nobody uses now.
func lacking(need, free int64, others []promise) int64 { return need - free + outstanding(others) }

// outstanding is what was promised and is not in use yet.
func outstanding(others []promise) (sum int64) {
	for _, p := range others {
		sum += max(0, p.bytes-p.resident)
	}
	return sum
}

// shortOf says with numbers why a scenario is not raised, on a machine that has
// so much memory free, of so much in all.
func shortOf(p Plan, free, total int64, others []promise) error {
	if p.MemoryBytes > total {
		return &Error{
			What: "not enough memory to raise " + p.Name,
			Why:  fmt.Sprintf("it needs %d MiB, this machine has %d MiB in all", p.MemoryBytes>>20, total>>20),
			Next: "give the machines less memory, or raise fewer of them", Code: codePrerequisite, Cause: errNever,
		}
	}
	lacks := lacking(p.MemoryBytes, free, others)
	if lacks <= 0 {
		return nil
	}
	why := fmt.Sprintf("it needs %d MiB, %d MiB are free", p.MemoryBytes>>20, free>>20)
	if open := outstanding(others); open > 0 {
		why += fmt.Sprintf(", %d MiB of them promised to %s", open>>20, names(others))
	}
	return &Error{
		What: "not enough memory to raise " + p.Name, Why: why + fmt.Sprintf(": %d MiB are missing", (lacks+1<<20-1)>>20),
		Next: "destroy another scenario (`lab list`), wait until there is enough (`lab raise --wait`), or give the machines less memory",
		Code: codePrerequisite, Cause: errShort,
	}
}

// errShort means that waiting may help: the lab machine has too little of
// something that others may give back.
var errShort = errors.New("too little is free")

// errNever means that it does not, whatever else is given back.
var errNever = errors.New("there is too little")

func names(all []promise) string {
	var words []string
	for _, p := range all {
		words = append(words, p.name)
	}
	return strings.Join(words, ", ")
}

// promised lists what other scenarios of this lab machine may come to use, those
// of other stores too. One whose machines cannot be asked counts as using nothing
// yet.
func (l *Lab) promised(ctx context.Context, except string) ([]promise, error) {
	all, err := l.Names()
	if err != nil {
		return nil, err
	}
	records, err := l.elsewhere()
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if r, err := readRecord(l.Directory(name)); err == nil && name != except {
			records = append(records, r)
		}
	}
	var promises []promise
	for _, r := range records {
		if r.Phase == Destroying || l.abandoned(r) != "" {
			continue // what still runs of it is in use, and will not grow for anybody
		}
		promises = append(promises, promise{name: r.Plan.Name, bytes: r.Plan.MemoryBytes, resident: l.resident(ctx, r.Plan)})
	}
	return promises, nil
}

// resident is what the machines of a plan use now.
func (l *Lab) resident(ctx context.Context, p Plan) (sum int64) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, m := range p.Machines {
		if used, err := l.cfg.Abuse.Load(ctx, m.Spec.Name); err == nil {
			sum += used.ResidentBytes
		}
	}
	return sum
}

// admit calls begin, which writes the record that makes a promise of p, when
// there is room for p beside all others; else its error says what is missing. No
// other process is admitted in between. If wait is set it waits for room, and
// those who wait are served in the order in which they came.
func (l *Lab) admit(ctx context.Context, p Plan, wait bool, begin func() error) error {
	once := func() error {
		return l.queue(queueAdmission).alone(ctx, func() error {
			if err := l.room(ctx, p); err != nil {
				return err
			}
			if err := begin(); err != nil {
				return err
			}
			if err := l.announce(p); err != nil {
				return errors.Join(err, removeAll(p.Directory))
			}
			return nil
		})
	}
	err := once()
	if !wait || !errors.Is(err, errShort) || errors.Is(err, errNever) {
		return err
	}
	l.cfg.Progress.Note("%s waits for room", p.Name)
	leave, err := l.queue(queueWaiting).enter(ctx, 1, func(ahead int) {
		l.cfg.Progress.Note("%d wait before it", ahead)
	})
	if err != nil {
		return err
	}
	defer leave()
	again := time.NewTicker(4 * l.cfg.Poll)
	defer again.Stop()
	for {
		if err := once(); !errors.Is(err, errShort) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

// The queues of a lab machine.
const (
	queueAdmission = "admission" // who reserves memory
	queueWaiting   = "waiting"   // who waits for it
	queueBoot      = "boot"      // whose machine boots
)

// queue is one of this lab machine's.
func (l *Lab) queue(name string) queue {
	return queue{dir: filepath.Join(l.cfg.Runtime, "queue-"+name), poll: l.cfg.Poll}
}

// Beginning is of machines that begin to run together.
type Beginning struct {
	Accelerator machine.Accelerator
	Machines    int  // how many; 0 counts as one
	Cold        bool // they boot, rather than go on from what was in a memory
	What        string
}

// Turn waits until machines may begin to run, whoever asks, on the whole lab
// machine, in the order in which they came. The returned function tells that they
// have done so. Nobody who has a turn waits for another one. Under KVM it does not
// matter how many begin; emulated machines that boot keep a core each busy for
// long, those that start warm only for some seconds.
func (l *Lab) Turn(ctx context.Context, b Beginning) (done func(), err error) {
	if b.Accelerator == machine.KVM {
		return func() {}, nil
	}
	room := 2 * l.cfg.Computer.Cores()
	if b.Cold {
		room = l.cfg.Computer.Cores()
	}
	return l.queue(queueBoot).enter(ctx, room-max(0, b.Machines-1), func(ahead int) {
		l.cfg.Progress.Note("waits for its turn, %d before it: %s", ahead, b.What)
	})
}
