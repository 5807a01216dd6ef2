package specs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// elsewhere is a second lab machine, as far as namespaces make one: its own network
// and processes, libvirt's directories, and a store of its own.
type elsewhere struct {
	dir string
	rsh string // is given a host, whose name is of no account, and a command to run there
	lab string // there
}

// ground has the directories of a lab machine that has none of ours.
const ground = `ip link set lo up
for dir in /run/libvirt /var/log/libvirt /run/mesh-lab /var/lib/libvirt /run/netns; do
	mkdir -p $dir
	mount -t tmpfs tmpfs $dir
done
mkdir -p /var/lib/libvirt/qemu
echo ready
exec sleep infinity`

// goElsewhere makes one until the spec ends.
func goElsewhere(ctx context.Context) elsewhere {
	GinkgoHelper()
	dir, err := os.MkdirTemp("/var/tmp", "mesh-elsewhere-")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	DeferCleanup(os.RemoveAll, dir)
	e := elsewhere{dir: dir, rsh: filepath.Join(dir, "rsh"), lab: *labBin + " --store " + filepath.Join(dir, "store")}

	machine := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", ground)
	said, err := machine.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(machine.Start()).To(Succeed())
	DeferCleanup(func() { // all processes in it end with it
		_ = machine.Process.Kill()
		_ = machine.Wait()
	})
	ready := make([]byte, len("ready\n"))
	_, err = said.Read(ready)
	Expect(err).NotTo(HaveOccurred())
	inside, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", machine.Process.Pid))
	Expect(err).NotTo(HaveOccurred())
	enter := "#!/bin/sh\nshift\nexec nsenter -t " + strings.TrimSpace(string(inside)) + " -m -n -p -- sh -c \"$*\"\n"
	Expect(os.WriteFile(e.rsh, []byte(enter), 0o755)).To(Succeed())
	return e
}

// run runs a lab command there.
func (e elsewhere) run(ctx context.Context, command string) (string, error) {
	out, err := exec.CommandContext(ctx, e.rsh, "host", e.lab+" "+command).CombinedOutput()
	return string(out), err
}

var _ = Describe("Archives", Label("archive"), func() {
	It("case L8: a scenario goes into a file and comes out under another name, and moves to another lab machine", func(ctx SpecContext) {
		first, r := lab().Raise(ctx, "pair", runID+"-goes")
		keep(first, []string{"one", "two"})
		second := lab().Mesh(runID + "-came")
		DeferCleanup(func(ctx SpecContext) {
			for _, m := range []*bench.Mesh{first, second} {
				forget(m)
				Expect(lab().Run(ctx, "", "destroy", m.Name, "--snapshots").Err()).To(Succeed())
			}
			Expect(traces(first.Name)).To(BeEmpty())
			Expect(traces(second.Name)).To(BeEmpty())
		}, NodeTimeout(time.Minute))
		Expect(r.Err()).To(Succeed())
		there := goElsewhere(ctx)
		file := filepath.Join(there.dir, "goes.meshlab")
		Expect(first.Machine("one").Sh(ctx, "echo kept >/root/kept; echo held >/run/held").Err()).To(Succeed())

		By("exporting a snapshot, of which nothing else stays")
		for _, args := range [][]string{
			{"snapshot", "take", first.Name, "s"}, {"export", first.Name, "s", "--output", file},
			{"destroy", first.Name, "--snapshots"}, {"import", file, "--as", second.Name}, {"restore", second.Name, "s"},
		} {
			r := lab().Run(ctx, "", args...)
			Expect(r.Err()).To(Succeed())
			AddReportEntry("took", fmt.Sprintf("%s: %.1f s", args[0], r.Took.Seconds()))
		}
		forget(first)
		keep(second, []string{"one", "two"})
		Expect(second.Machine("one").Sh(ctx, "cat /root/kept /run/held").Stdout).To(Equal("kept\nheld\n"))
		Expect(second.Machine("one").Sh(ctx, "ping -c 1 -W 10 two.world.test").Err()).To(Succeed())

		By("moving it, with what is in memory since")
		Expect(second.Machine("one").Sh(ctx, "echo later >/run/held").Err()).To(Succeed())
		moved := lab().Run(ctx, "", "move", second.Name, "qemu+ssh://elsewhere", "--rsh", there.rsh, "--lab", there.lab)
		Expect(moved.Err()).To(Succeed())
		AddReportEntry("took", fmt.Sprintf("move: %.1f s", moved.Took.Seconds()))
		forget(second)
		Expect(lab().Run(ctx, "", "status", second.Name).Code).To(Equal(2), "it is still here")
		said, err := there.run(ctx, "exec "+second.Name+" one -- cat /root/kept /run/held")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(said).To(HaveSuffix("kept\nlater\n"))
		said, err = there.run(ctx, "destroy "+second.Name+" --snapshots")
		Expect(err).NotTo(HaveOccurred(), said)
	}, SpecTimeout(6*time.Minute))
})
