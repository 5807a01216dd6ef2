package specs_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

var _ = Describe("Faults", Label("lab", "fault"), Ordered, func() {
	var mesh *bench.Mesh
	var one, two *bench.Machine

	BeforeAll(func(ctx SpecContext) {
		var result bench.Result
		mesh, result = lab().Raise(ctx, "pair", runID+"-faults")
		keep(mesh, []string{"one", "two"})
		one, two = mesh.Machine("one"), mesh.Machine("two")
		Expect(result.Err()).To(Succeed())
	}, NodeTimeout(4*time.Minute))

	AfterAll(func(ctx SpecContext) {
		forget(mesh)
		Expect(mesh.Destroy(ctx).Err()).To(Succeed())
	}, NodeTimeout(time.Minute))

	AfterEach(func(ctx SpecContext) {
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "--all").Err()).To(Succeed())
		Expect(inForce(ctx, mesh)).To(BeEmpty())
	}, NodeTimeout(time.Minute))

	strike := func(ctx context.Context, args ...string) {
		GinkgoHelper()
		Expect(lab().Run(ctx, "", append([]string{"fault", "add", mesh.Name}, args...)...).Err()).To(Succeed())
	}
	pings := func(ctx context.Context, from *bench.Machine, to string) bool {
		return from.Sh(ctx, "ping -n -q -c 2 -i 0.3 -W 2 "+to).Code == 0
	}

	It("cuts two machines apart, and nobody else, until it is undone by its name", func(ctx SpecContext) {
		Expect(pings(ctx, one, "203.0.113.11")).To(BeTrue())
		strike(ctx, "partition", "one", "--from", "two", "--name", "split")
		Expect(inForce(ctx, mesh)).To(Equal([]string{"split"}))
		Expect(pings(ctx, one, "203.0.113.11")).To(BeFalse())
		Expect(pings(ctx, one, "203.0.113.2")).To(BeTrue(), "the world")
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "split").Err()).To(Succeed())
		Expect(pings(ctx, one, "203.0.113.11")).To(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("delays what a machine sends and receives, without a word to the machine", func(ctx SpecContext) {
		strike(ctx, "delay", "one", "--delay", "150ms")
		r := one.Sh(ctx, "ping -n -q -c 3 -i 0.5 203.0.113.2 | sed -n 's|^rtt[^=]*= \\([0-9]*\\).*|\\1|p'")
		Expect(r.Err()).To(Succeed())
		least, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
		Expect(err).NotTo(HaveOccurred())
		Expect(least).To(BeNumerically(">=", 300), "milliseconds there and back")
	}, SpecTimeout(time.Minute))

	It("sets a machine's clock, and sets it back", func(ctx SpecContext) {
		ahead := func() time.Duration {
			GinkgoHelper()
			r := one.Sh(ctx, "date +%s")
			Expect(r.Err()).To(Succeed())
			seconds, err := strconv.ParseInt(strings.TrimSpace(r.Stdout), 10, 64)
			Expect(err).NotTo(HaveOccurred())
			return time.Until(time.Unix(seconds, 0))
		}
		strike(ctx, "clock-step", "one", "--by", "1d")
		Expect(ahead()).To(BeNumerically("~", 24*time.Hour, 10*time.Second))
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "--all").Err()).To(Succeed())
		Expect(ahead()).To(BeNumerically("~", 0, 10*time.Second))
	}, SpecTimeout(time.Minute))

	It("fills a machine's disk to the last byte, and frees it", func(ctx SpecContext) {
		const write = "dd if=/dev/zero of=/root/some bs=64k count=16 conv=fsync; code=$?; rm -f /root/some; exit $code"
		Expect(two.Sh(ctx, write).Err()).To(Succeed())
		strike(ctx, "disk-full", "two")
		full := two.Sh(ctx, write)
		Expect(full.Code).NotTo(BeZero())
		Expect(full.Stderr).To(ContainSubstring("No space left on device"))
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "disk-full-two").Err()).To(Succeed())
		Expect(two.Sh(ctx, write).Err()).To(Succeed())
		strike(ctx, "disk-full", "two", "--leave", "4MiB")
		Expect(two.Sh(ctx, write).Err()).To(Succeed())
		Expect(two.Sh(ctx, strings.Replace(write, "count=16", "count=96", 1)).Code).NotTo(BeZero())
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "disk-full-two").Err()).To(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("has the issuer refuse, and answer again", func(ctx SpecContext) {
		const directory = "curl --silent --output /dev/null --write-out '%{http_code}' https://acme.world.test:14000/dir"
		Expect(one.Sh(ctx, directory).Stdout).To(Equal("200"))
		strike(ctx, "issuer-refusing")
		Expect(one.Sh(ctx, directory).Stdout).To(Equal("503"))
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "--all").Err()).To(Succeed())
		strike(ctx, "service-stopped", "issuer")
		Expect(one.Sh(ctx, directory).Code).To(Equal(7), "curl: the connection is refused")
		Expect(lab().Run(ctx, "", "fault", "remove", mesh.Name, "--all").Err()).To(Succeed())
		Expect(one.Sh(ctx, directory).Stdout).To(Equal("200"))
	}, SpecTimeout(2*time.Minute))

	It("does what a timeline says, and undoes it when it is interrupted", func(ctx SpecContext) {
		storm := filepath.Join(GinkgoT().TempDir(), "storm.yaml")
		Expect(os.WriteFile(storm, []byte(`
steps:
  - {at: 0s, fault: loss, on: one, share: 100%, for: 1s}
  - {at: 2s, fault: pause, on: two}
  - {at: 1h, undo: all}
`), 0o644)).To(Succeed())
		storming, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd, err := lab().Start(storming, GinkgoWriter, "timeline", "run", mesh.Name, storm)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() []string { return inForce(ctx, mesh) }).
			WithTimeout(30 * time.Second).WithPolling(100 * time.Millisecond).Should(Equal([]string{"pause-two"}))
		cancel()
		Expect(cmd.Wait()).NotTo(Succeed())
		Expect(cmd.ProcessState.ExitCode()).To(Equal(130))
		Expect(inForce(ctx, mesh)).To(BeEmpty())
		Expect(pings(ctx, one, "203.0.113.11")).To(BeTrue())
	}, SpecTimeout(2*time.Minute))
})

// inForce are the names of the faults of a mesh.
func inForce(ctx context.Context, mesh *bench.Mesh) []string {
	GinkgoHelper()
	r := lab().Run(ctx, "", "fault", "list", mesh.Name, "--json")
	Expect(r.Err()).To(Succeed())
	var faults []struct {
		Name string `json:"name"`
	}
	Expect(json.Unmarshal([]byte(r.Stdout), &faults)).To(Succeed())
	var names []string
	for _, f := range faults {
		names = append(names, f.Name)
	}
	return names
}
