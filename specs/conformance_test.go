package specs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// conforms runs, on a machine, the suite that stands for systemd, apt and podman where
// tests of the host take a fake for them: what the fake passes, the real one has to.
func conforms(ctx context.Context, m *bench.Machine, test string, flags string) {
	GinkgoHelper()
	program := filepath.Join(GinkgoT().TempDir(), "system.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-o", program, "mesh/host/system")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	binary, err := os.ReadFile(program)
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Write(ctx, "/root/system.test", string(binary))).To(Succeed())
	r := m.Sh(ctx, "chmod 0700 /root/system.test && cd /root && ./system.test -test.v -test.run '^("+test+")$' "+flags)
	Expect(r.Err()).To(Succeed())
	Expect(r.Stdout).To(And(ContainSubstring("--- PASS: Test"), Not(ContainSubstring("SKIP"))), "%s", r)
}

var _ = Describe("What tests take a fake for", Label("apply", "conformance"), func() {
	It("is as the fake: systemd, commands in units of their own, apt and dpkg", func(ctx SpecContext) {
		_, one := raiseOne(ctx, "conformance")
		conforms(ctx, one, "TestConformanceOfSystemd|TestTransientRun|TestConformanceOfApt", "-systemd -apt")
	}, SpecTimeout(5*time.Minute))
})
