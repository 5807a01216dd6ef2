package volatile_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"mesh/lab/volatile"
)

// TestCutQcow2 cuts the power of QEMU's own writer of qcow2, over and over, at
// random, taking all that was not flushed or any part of it. The image is
// consistent each time, and holds what was flushed.
func TestCutQcow2(t *testing.T) {
	for _, program := range []string{"qemu-img", "qemu-io"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	c, _ := served(t, "")
	qemu(t, "qemu-img", "create", "-q", "-f", "qcow2", c.Directory+"/base.qcow2", "16M")
	qemu(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "base.qcow2", behind(c))
	flushed := map[int]int{} // block → what it is filled with
	lost := int64(0)
	for seed := range uint64(16) {
		luck := rand.New(rand.NewPCG(seed, 1))
		w := newWriter(t, disk(c))
		written := map[int]int{}
		for range 8 + luck.IntN(40) {
			switch block := luck.IntN(blocks); {
			case luck.IntN(8) == 0:
				w.do(t, "flush")
				for block, pattern := range written {
					flushed[block] = pattern
				}
				clear(written)
			case luck.IntN(8) == 0:
				w.do(t, fmt.Sprintf("write -z %d %d", block*blockSize, blockSize))
				written[block] = 0
			default:
				written[block] = 1 + luck.IntN(255)
				w.do(t, fmt.Sprintf("write -P %d %d %d", written[block], block*blockSize, blockSize))
			}
		}
		n, err := volatile.NewClient(c.Control).Cut(t.Context(), disk(c), volatile.Loss{Survive: float64(seed%4) / 4, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.cmd.Wait()
		lost += n
		check(t, seed, behind(c))
		w = newWriter(t, disk(c))
		for block, pattern := range flushed {
			if _, anew := written[block]; anew {
				delete(flushed, block) // any mixture of what was and what came
				continue
			}
			if said := w.do(t, fmt.Sprintf("read -P %d %d %d", pattern, block*blockSize, blockSize)); strings.Contains(said, "failed") {
				t.Errorf("seed %d: block %d does not hold the %d that was flushed: %s", seed, block, pattern, said)
			}
		}
		w.in.Close()
		_ = w.cmd.Wait()
		unflushed(t, c, 0)
	}
	if lost == 0 {
		t.Error("no cut lost anything, so nothing was tried")
	}
}

const (
	blocks    = 64
	blockSize = 48 << 10 // not a cluster
)

// check lets QEMU look for damage. Clusters that nothing refers to are none: they
// were taken, and who was to refer to them was lost.
func check(t *testing.T, seed uint64, image string) {
	t.Helper()
	const leaksOnly = 3
	cmd := exec.Command("qemu-img", "check", "-q", image)
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != leaksOnly {
		t.Errorf("seed %d: the image is damaged: %v\n%s", seed, err, out)
	}
}

// writer is a QEMU that does as it is told.
type writer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newWriter(t *testing.T, disk string) *writer {
	t.Helper()
	w := &writer{cmd: exec.Command("qemu-io", "-f", "qcow2", "-t", "writeback", disk)}
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stderr = w.cmd.Stdout
	w.in, w.out = in, bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	w.prompted(t, "start")
	return w
}

// do gives one command and returns what was said to it.
func (w *writer) do(t *testing.T, command string) string {
	t.Helper()
	if _, err := fmt.Fprintln(w.in, command); err != nil {
		t.Fatal(err)
	}
	return w.prompted(t, command)
}

// prompted waits until the next command is asked for.
func (w *writer) prompted(t *testing.T, before string) string {
	t.Helper()
	const prompt = "qemu-io> "
	var said strings.Builder
	for !strings.HasSuffix(said.String(), prompt) {
		b, err := w.out.ReadByte()
		if err != nil {
			t.Fatalf("%s: %v\n%s", before, err, said.String())
		}
		said.WriteByte(b)
	}
	return strings.TrimSuffix(said.String(), prompt)
}

func qemu(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
