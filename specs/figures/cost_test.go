package figures_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mesh/specs/figures"
)

// cost notes what an idle scenario costs the lab machine.
func (m *measurement) cost(ctx context.Context, n int, scenario string) {
	var s status
	if !m.ask(ctx, &s, "status", scenario) {
		return
	}
	pids := []int{s.World.PID}
	var resident int64
	for _, machine := range s.Machines {
		pid, err := readInt(filepath.Join("/run/libvirt/qemu", machine.Domain+".pid"))
		if err != nil {
			m.t.Logf("cost: %v", err)
			return
		}
		pids = append(pids, int(pid))
		resident += memory(int(pid))
	}
	before := processorTime(pids)
	select {
	case <-ctx.Done():
		return
	case <-time.After(*idle): // the time to measure over
	}
	share := (processorTime(pids) - before).Seconds() / idle.Seconds()
	m.notes = append(m.notes, fmt.Sprintf("%d machine(s) idle: %.1f %% of one core over %s with the world; %d MiB of lab memory a machine of 512 MiB",
		n, 100*share, *idle, resident/int64(len(s.Machines))>>20))
	m.t.Log(m.notes[len(m.notes)-1])
}

// processorTime is what processes have used so far: proc_pid_stat(5), utime and
// stime in ticks of 10 ms.
func processorTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		for _, field := range fields[11:13] {
			ticks, _ := strconv.ParseInt(string(field), 10, 64)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// memory is what a process holds of the lab machine's memory, shared pages by
// its share: Pss of proc_pid_smaps_rollup(5).
func memory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func readInt(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func vagrantInstalled() bool {
	if _, err := exec.LookPath("vagrant"); err != nil {
		return false
	}
	said, err := exec.Command("vagrant", "plugin", "list").Output()
	return err == nil && bytes.Contains(said, []byte("vagrant-libvirt"))
}

// vagrant runs the peer once.
func (m *measurement) vagrant(ctx context.Context, n int) {
	if m.box == "" {
		return
	}
	var list struct {
		Images []struct {
			Name  string `json:"name"`
			State string `json:"state"` // "built": of the recipe as it is
			Image *struct {
				Disk    string `json:"disk"`
				Kernel  string `json:"kernel"`
				Initrd  string `json:"initrd"`
				Cmdline string `json:"cmdline"`
			} `json:"image"`
		} `json:"images"`
	}
	if !m.ask(ctx, &list, "image", "list") {
		return
	}
	for _, i := range list.Images {
		if i.Name != "debian-13" || i.State != "built" || i.Image == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 12*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "./vagrant.sh", strconv.Itoa(n), i.Image.Disk, i.Image.Kernel, i.Image.Initrd, i.Image.Cmdline, m.box)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		said, err := cmd.Output()
		took, bad := time.ParseDuration(strings.TrimSpace(string(said)) + "s")
		if err != nil || bad != nil {
			m.whole.Fail(vagrant, n, fmt.Errorf("%v: %s%s", err, stderr.String(), m.lastOfPeer()))
			m.t.Logf("%s: %v %s", vagrant, err, m.lastOfPeer())
			return
		}
		m.whole.Add(vagrant, n, took)
		m.t.Logf("%s: %.1f s", vagrant, took.Seconds())
	}
}

// lastOfPeer is the end of what the peer said.
func (m *measurement) lastOfPeer() string {
	text, err := os.ReadFile(filepath.Join(m.box, "up.log"))
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-500):])
}

// report writes what was measured, for people and for programs.
func (m *measurement) report() {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# What people wait for: the lab\n\n%s, %d runs.\n\n", host(), *runs)
	m.markdown(&text)
	m.t.Log("\n" + text.String())
	if *outDir == "" {
		return
	}
	doc, err := json.MarshalIndent(map[string]any{
		"host": host(), "runs": *runs, "rows": m.whole.Rows(), "phases": m.phases.Rows(), "notes": m.notes,
	}, "", "  ")
	if err != nil {
		m.t.Fatal(err)
	}
	for file, content := range map[string][]byte{"lab.md": text.Bytes(), "lab.json": append(doc, '\n')} {
		if err := os.WriteFile(filepath.Join(*outDir, file), content, 0o644); err != nil {
			m.t.Error(err)
		}
	}
}

func (m *measurement) markdown(w io.Writer) {
	show := func(t *figures.Table) {
		if err := t.Markdown(w, m.counts); err != nil {
			m.t.Error(err)
		}
	}
	show(&m.whole)
	fmt.Fprintln(w, "\n## How many times faster than that a warm raise is")
	for _, n := range m.counts {
		for _, than := range []string{cold, vagrant} {
			if ratio, ok := m.whole.Ratio(than, warm, n); ok {
				fmt.Fprintf(w, "- %d machine(s), %s: %.1f times\n", n, than, ratio)
			}
		}
	}
	fmt.Fprintln(w, "\n## Where it goes")
	show(&m.phases)
	fmt.Fprintln(w, "\n## What standing costs")
	for _, note := range m.notes {
		fmt.Fprintln(w, "- "+note)
	}
}

// host says what all this ran on.
func host() string {
	cpu := "an unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		cores := bytes.Count(text, []byte("\nprocessor")) + 1
		for line := range strings.Lines(string(text)) {
			if _, model, ok := strings.Cut(line, "model name\t: "); ok {
				cpu = fmt.Sprintf("%d × %s", cores, strings.TrimSpace(model))
				break
			}
		}
	}
	return cpu
}
