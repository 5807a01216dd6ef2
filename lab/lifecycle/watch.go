package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/world"
)

// watch looks at what work has set running, and ends the work as soon as one of
// it dies or panics. Its methods may be called from any goroutine.
type watch struct {
	lab        *Lab
	plan       Plan
	machines   chan *console // of machines that are to be watched
	companions chan companion
}

// companion is a process that a run leaves behind.
type companion struct {
	what, log string
	process   world.Process
}

// watched calls work, whose context ends, with the reason as its cause, when
// something that work gave to its watch dies. That reason is then the error.
func (l *Lab) watched(ctx context.Context, p Plan, work func(context.Context, *watch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{lab: l, plan: p, machines: make(chan *console, len(p.Machines)), companions: make(chan companion, 2)}
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx, cancel) })
	err := work(ctx, w)
	if errors.Is(err, machine.ErrAbsent) {
		// Work met a machine's end first; the watch knows more of it.
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // what ended the others tells more than that they were ended
	}
	cancel(nil)
	running.Wait()
	return err
}

// add begins to watch a machine, and what it says from now on; each at most once.
func (w *watch) add(m Machine) { w.machines <- openConsole(m) }

// world begins to watch the world's process; once.
func (w *watch) world(p world.Process) {
	w.companions <- companion{"the world's process", w.plan.World.Log, p}
}

// disks begins to watch the process that serves the disks; once.
func (w *watch) disks(p world.Process) {
	w.companions <- companion{"the process of the disks", w.lab.VolatileOf(w.plan).Log, p}
}

// run watches until ctx ends; the first death cancels it.
func (w *watch) run(ctx context.Context, cancel context.CancelCauseFunc) {
	var waits sync.WaitGroup
	defer waits.Wait()
	tick := time.NewTicker(w.lab.cfg.Poll)
	defer tick.Stop()
	var companions []companion
	consoles := map[string]*console{}
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-w.companions:
			companions = append(companions, c)
		case c := <-w.machines:
			consoles[c.machine.Name] = c
			waits.Go(func() { w.death(ctx, c.machine, cancel) })
		case <-tick.C:
			for _, c := range companions {
				if !w.lab.cfg.Computer.Alive(c.process) {
					cancel(&Error{What: c.what + " died", Where: c.log, Why: fileTail(c.log, 10), Code: codeFailed})
					return
				}
			}
			for _, c := range consoles {
				if fatal := guest.Scan(bytes.NewReader(c.newLines())); len(fatal) > 0 {
					cancel(&Error{
						What: "machine " + c.machine.Name + " failed by its own word", Where: "machine " + c.machine.Name,
						Why:  fatal[0].Kind + ": " + fatal[0].Text + "\n" + consoleTail(c.machine),
						Code: codeFailed,
					})
					return
				}
			}
		}
	}
}

// death waits for the end of a machine's process.
func (w *watch) death(ctx context.Context, m Machine, cancel context.CancelCauseFunc) {
	end, err := w.lab.cfg.Hypervisor.Wait(ctx, m.Spec.Name)
	if err != nil || ctx.Err() != nil {
		return // the hypervisor's failure is met by whoever asks it next
	}
	cancel(died(m, end))
}

// died tells all that is known of a machine's end.
func died(m Machine, end machine.Death) error {
	why := "its process ended: " + string(end.Cause)
	if said := strings.TrimSpace(lastLines(end.Stderr, 10)); said != "" {
		why += "\nits error output ends with:\n" + said
	}
	why += "\n" + consoleTail(m)
	if end.Command != "" {
		why += "\nits process was started by:\n" + end.Command
	}
	return &Error{
		What: "machine " + m.Name + " died", Where: "machine " + m.Name, Why: why, Code: codeFailed,
	}
}

// consoleTail is the end of a machine's console, introduced.
func consoleTail(m Machine) string {
	if tail := fileTail(m.Spec.ConsoleLog, 20); strings.TrimSpace(tail) != "" {
		return "its console ends with:\n" + tail
	}
	return "its console is silent"
}

// console reads a machine's recorded console as it grows.
type console struct {
	machine Machine
	read    int64
}

// openConsole begins at the end of what is there: earlier boots are not judged.
func openConsole(m Machine) *console {
	c := &console{machine: m}
	if info, err := os.Stat(m.Spec.ConsoleLog); err == nil {
		c.read = info.Size()
	}
	return c
}

// newLines gives the whole lines written since it was asked last.
func (c *console) newLines() []byte {
	f, err := os.Open(c.machine.Spec.ConsoleLog)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, c.read, 1<<20))
	if err != nil {
		return nil
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	c.read += int64(len(whole))
	return whole
}

// fileTail is the last lines of a file; empty where there is none.
func fileTail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	tail, err := guest.Tail(f, lines)
	if err != nil {
		return ""
	}
	return tail
}
