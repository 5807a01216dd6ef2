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

// crashing is a program that does not work, and itCrashed what is remembered of
// it. More of them run under a systemd without a machine: see cmd/host.
const (
	crashing  = "#!/bin/sh\nkill -SEGV $$\n"
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

// declare makes a bundle of one package, the host's own, and what it needs.
const declare = `set -e
cd /root
mkdir -p content
digest=$(sha256sum <"$DEB" | cut -d' ' -f1)
cp "$DEB" "content/$digest"
printf '{"format":2,"resources":[{"id":"host/package","package":{"name":"mesh-host","version":"%s","blob":{"digest":"%s","bytes":%d}}}]}' \
	"$VERSION" "$digest" "$(stat -c %s "$DEB")" >bundle.json
mesh-host reconcile bundle.json`

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

var _ = Describe("Another version of the host", Label("upgrade"), func() {
	It("case H4: is declared, proves itself, and is replaced by the one before when it does not", func(ctx SpecContext) {
		mesh, raised := lab().Raise(ctx, "single", runID+"-upgrade")
		keep(mesh, []string{"one"})
		DeferCleanup(func(ctx SpecContext) {
			forget(mesh)
			Expect(mesh.Destroy(ctx).Err()).To(Succeed())
		}, NodeTimeout(2*time.Minute))
		Expect(raised.Err()).To(Succeed())
		one := mesh.Machine("one")
		first := install(ctx, one)
		Expect(one.Sh(ctx, quick).Err()).To(Succeed())
		proved(ctx, one, first.HostVersion)

		const good = "9.0"
		By("declaring a version that works")
		deb := packed(ctx, one, good, builtHost(ctx, good))
		Expect(one.Sh(ctx, "VERSION="+good+" DEB="+deb+"\n"+declare).Err()).To(Succeed())
		status := proved(ctx, one, good)
		Expect(status.Program.Kept.Package).NotTo(BeEmpty())
		Expect(dpkgHas(ctx, one)).To(Equal(good + " installed"))

		const bad = "9.1"
		By("declaring a version that does not")
		deb = packed(ctx, one, bad, crashing)
		Expect(one.Sh(ctx, "VERSION="+bad+" DEB="+deb+"\n"+declare).Err()).To(Succeed())
		isBroken(ctx, one, bad, good, itCrashed)
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			g.Expect(dpkgHas(ctx, one)).To(Equal(good + " installed"))
			status, err := one.Host(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Resources).To(ContainElement(And(HaveField("Status", "failed"), HaveField("Reason",
				And(ContainSubstring("version "+bad+" is broken since "), ContainSubstring(itCrashed), ContainSubstring("not tried again"))))))
		}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
		Expect(one.Sh(ctx, "mesh-host --version").Stdout).To(ContainSubstring(good))
	}, SpecTimeout(20*time.Minute))
})
