package specs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// repack makes, on a machine, the package of another version of the host of the
// one in its package source: with what is at /root/program as its program.
const repack = `set -e
cd /root
rm -rf tree
test -e mesh-host_*.deb || apt-get download -q mesh-host
dpkg-deb -R mesh-host_*.deb tree
sed -i "s/^Version:.*/Version: $VERSION/" tree/DEBIAN/control
install -m 0755 program tree/usr/bin/mesh-host
cd tree
find * -path DEBIAN -prune -o -type f -print0 | xargs -0 md5sum >DEBIAN/md5sums
cd ..
dpkg-deb -b -Znone tree "other-$VERSION.deb" >/dev/null`

// crashing is a program that does not work, after a while in which the power can be
// cut, and itCrashed what is remembered of it. More of them run under a systemd
// without a machine: see cmd/host.
const (
	crashing  = "#!/bin/sh\n[ \"$1\" != run ] || sleep 10\nkill -SEGV $$\n"
	itCrashed = "it was killed by SIGSEGV"
)

// packed makes the package of a version with this program on m.
func packed(ctx context.Context, m *bench.Machine, version, program string) string {
	GinkgoHelper()
	Expect(m.Write(ctx, "/root/program", program)).To(Succeed())
	Expect(m.Sh(ctx, "VERSION="+version+"\n"+repack).Err()).To(Succeed())
	return "/root/other-" + version + ".deb"
}

// builtHost is the program of this tree, as another version.
func builtHost(ctx context.Context, version string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "mesh-host")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w -X main.version="+version, "-o", path, "../cmd/host")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	b, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return string(b)
}

// quick makes a trial, and a pass, come sooner than as it is shipped.
const quick = `mkdir -p /etc/systemd/system/mesh-host.service.d
cat >/etc/systemd/system/mesh-host.service.d/quick.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/bin/mesh-host run --trial 10s --interval 3s
END
systemctl daemon-reload
systemctl restart mesh-host`

// asShipped takes that back.
const asShipped = `rm -r /etc/systemd/system/mesh-host.service.d
systemctl daemon-reload
systemctl restart mesh-host`

// dpkgHas is what dpkg knows of the host; it says, too, what of it is not as it
// was installed.
func dpkgHas(ctx context.Context, m *bench.Machine) string {
	return strings.TrimSpace(m.Sh(ctx, `dpkg-query -W -f '${Version} ${db:Status-Status}\n' mesh-host; dpkg --verify mesh-host | grep /usr/`).Stdout)
}

// proved waits until a version runs, is kept, and is on trial no more.
func proved(ctx context.Context, m *bench.Machine, version string) bench.HostStatus {
	GinkgoHelper()
	var status bench.HostStatus
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		var err error
		status, err = m.Host(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.HostVersion).To(Equal(version))
		g.Expect(status.Program.Kept.Version).To(Equal(version))
		g.Expect(status.Program.Trial).To(BeNil())
		g.Expect(m.Sh(ctx, "systemctl is-active mesh-host").Stdout).To(Equal("active\n"))
	}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
	return status
}

// isBroken waits until a version is known as broken and version runs again.
func isBroken(ctx context.Context, m *bench.Machine, broken, version, reason string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		status, err := m.Host(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.HostVersion).To(Equal(version))
		g.Expect(status.Program.Broken).To(ContainElement(And(HaveField("Version", broken), HaveField("Reason", reason))))
		g.Expect(m.Sh(ctx, "systemctl is-active mesh-host").Stdout).To(Equal("active\n"))
	}).WithTimeout(4 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
}

// onTrial waits until a version is on trial. The one that is kept says so: the
// other may say nothing.
func onTrial(ctx context.Context, m *bench.Machine, version string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		var status bench.HostStatus
		g.Expect(m.JSON(ctx, "/var/lib/mesh-host/program/good status --json", &status)).To(Succeed())
		g.Expect(status.Program.Trial).NotTo(BeNil())
		g.Expect(status.Program.Trial.Version).To(Equal(version))
	}).WithTimeout(4 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// seenByThePlane waits until the plane sees a node up, with a version, and with
// what is declared to it come to this.
func seenByThePlane(ctx context.Context, w *walk, node, version string, host OmegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		n, err := w.one.Node(ctx, node)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n.State).To(Equal("connected"))
		g.Expect(n.HostVersion).To(Equal(version))
		g.Expect(n.Acknowledged).NotTo(BeNil())
		g.Expect(n.Acknowledged.Generation).To(Equal(n.Declared.Generation))
		g.Expect(n.Results).To(ContainElement(And(HaveField("ID", "host/package"), host)))
	}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
}

var _ = Describe("Another version of the host", Label("upgrade"), func() {
	It("case H4: is declared to all nodes, proves itself, and is replaced by the one before where it does not, whatever the power does", func(ctx SpecContext) {
		w := theMesh(ctx)
		nodes := map[string]*bench.Machine{"one": w.one, "two": w.two}
		DeferCleanup(func(ctx SpecContext) {
			Expect(w.one.Sh(ctx, "mesh-plane host unset").Err()).To(Succeed())
			for name, m := range nodes {
				Expect(m.Sh(ctx, asShipped).Err()).To(Succeed())
				n, err := w.one.Node(ctx, name)
				Expect(err).NotTo(HaveOccurred())
				Expect(converged(ctx, m, n.Declared.Generation).Statuses()).NotTo(HaveKey("host/package"))
			}
		}, NodeTimeout(6*time.Minute))
		for _, m := range nodes {
			Expect(m.Sh(ctx, quick).Err()).To(Succeed())
		}
		for _, m := range nodes {
			proved(ctx, m, w.installed.HostVersion)
		}

		const good = "9.0"
		By("giving the plane a version that works")
		deb := packed(ctx, w.one, good, builtHost(ctx, good))
		Expect(w.one.Sh(ctx, "mesh-plane host set "+deb).Err()).To(Succeed())
		for name, m := range nodes {
			Expect(proved(ctx, m, good).Program.Kept.Package).NotTo(BeEmpty())
			Expect(dpkgHas(ctx, m)).To(Equal(good + " installed"))
			seenByThePlane(ctx, w, name, good, HaveField("Status", "in_sync"))
		}

		const bad = "9.1"
		By("giving it one that does not, and cutting the power of a machine that tries it")
		deb = packed(ctx, w.one, bad, crashing)
		Expect(w.one.Sh(ctx, "mesh-plane host set "+deb).Err()).To(Succeed())
		onTrial(ctx, w.two, bad)
		Expect(w.two.Cut(ctx).Err()).To(Succeed())
		Expect(w.two.PowerOn(ctx).Err()).To(Succeed())
		for name, m := range nodes {
			isBroken(ctx, m, bad, good, itCrashed)
			seenByThePlane(ctx, w, name, good, And(HaveField("Status", "failed"), HaveField("Reason",
				And(ContainSubstring("version "+bad+" is broken since "), ContainSubstring(itCrashed), ContainSubstring("not tried again")))))
			Eventually(ctx, dpkgHas).WithArguments(m).WithTimeout(time.Minute).WithPolling(2 * time.Second).Should(Equal(good + " installed"))
			Expect(m.Sh(ctx, "mesh-host --version").Stdout).To(ContainSubstring(good))
		}
	}, SpecTimeout(25*time.Minute))
})
