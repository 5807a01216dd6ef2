package specs_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// counting overwrites a file without ever flushing, past the guest's own memory
// straight into the disk's cache, and says on the console what it has written.
const counting = `cd /root && dd if=/dev/zero of=cached bs=4k count=1 conv=fsync status=none && sync . && cat >count <<'END'
n=0
while :; do
	n=$((n+1))
	printf '%-4096d' $n | dd of=/root/cached bs=4096 iflag=fullblock oflag=direct conv=notrunc status=none
	echo "the disk was given $n" >/dev/console
done
END
setsid sh count >/dev/null 2>&1 </dev/null &`

var given = regexp.MustCompile(`the disk was given (\d+)`)

// disksOf is what status says of a scenario's disks.
type disksOf struct {
	Disks struct {
		Volatile bool   `json:"volatile"`
		PID      int    `json:"pid"`
		Problem  string `json:"problem"`
	} `json:"disks"`
	Abandoned string `json:"abandoned"`
	Run       string `json:"run"`
}

var _ = Describe("Power", Label("power"), func() {
	var mesh *bench.Mesh
	var disks disksOf

	BeforeEach(func(ctx SpecContext) {
		mesh, _ = raiseOne(ctx, "power")
		Expect(mesh.Status(ctx, &disks)).To(Succeed())
		if !disks.Disks.Volatile {
			Skip("what is not flushed survives a power cut here: " + disks.Disks.Problem)
		}
	}, NodeTimeout(6*time.Minute))

	It("keeps what a guest flushed and loses what it did not", func(ctx SpecContext) {
		one := mesh.Machine("one")
		Expect(one.Sh(ctx, counting).Err()).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(last(g, one.Console(ctx).Stdout)).To(BeNumerically(">", 20))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())

		// Just before the cut: a guest writes everything back by itself after a while.
		Expect(one.Sh(ctx, `cd /root && echo whole >flushed && sync flushed . && echo gone >unflushed`).Err()).To(Succeed())
		Expect(one.Cut(ctx).Err()).To(Succeed())
		console := one.Console(ctx)
		Expect(console.Err()).To(Succeed())
		Expect(one.PowerOn(ctx).Err()).To(Succeed())

		Expect(one.Sh(ctx, `cat /root/flushed`).Stdout).To(Equal("whole\n"))
		Expect(one.Sh(ctx, `cat /root/unflushed`).Stdout).To(BeEmpty())
		held, err := strconv.Atoi(strings.TrimSpace(one.Sh(ctx, `echo "0$(tr -d '\0 ' </root/cached)"`).Stdout))
		Expect(err).NotTo(HaveOccurred())
		Expect(held).To(BeNumerically("<", last(Default, console.Stdout)), "the disk's cache outlived the power")
	}, SpecTimeout(8*time.Minute))

	It("leaves nothing when the server of the disks is killed, and says what machines get", func(ctx SpecContext) {
		Expect(syscall.Kill(disks.Disks.PID, syscall.SIGKILL)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(mesh.Status(ctx, &disks)).To(Succeed())
			g.Expect(disks.Abandoned).To(ContainSubstring("process of its disks"))
			g.Expect(disks.Disks.Problem).To(ContainSubstring("errors from their disks"))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		forget(mesh) // its machine may panic now
		Expect(mesh.Destroy(ctx).Err()).To(Succeed())
		Expect(traces(mesh.Name)).To(BeEmpty())
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(mounts)).NotTo(ContainSubstring(disks.Run))
		Expect(fmt.Sprintf("/var/lib/mesh-lab/disks-%s", disks.Run)).NotTo(BeAnExistingFile())
	}, SpecTimeout(4*time.Minute))
})

// last is the last number that the console says the disk was given.
func last(g Gomega, console string) int {
	all := given.FindAllStringSubmatch(console, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1][1])
	g.Expect(err).NotTo(HaveOccurred())
	return n
}
