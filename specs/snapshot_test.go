package specs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// counter is a machine's own count in memory, which a file shows; and listener
// and talker are the ends of one TCP session over which another's count is told.
// A listener demands every number once, in order, on one session, so that one
// from the talker's future, or a session that was lost, is seen.
const (
	counter = `my $n = 0; while (1) { show('/run/count', ++$n); select undef, undef, undef, 0.05 }`

	listener = `use IO::Socket::INET;
my $l = IO::Socket::INET->new(Listen => 5, LocalPort => 7000, ReuseAddr => 1) or die $!;
while (my $s = $l->accept) {
	next if fork;
	my $last = 0;
	while (my $line = <$s>) {
		chomp $line;
		my ($who, $n) = split / /, $line;
		show("/run/gap-$who", "$n after $last") if $n != $last + 1;
		show("/run/heard-$who", $last = $n);
	}
	show("/run/gap-lost", 'the session ended');
}`

	talker = `use IO::Socket::INET;
my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => 7000) or die $!;
my $n = 0;
while (1) { print {$s} "$ARGV[1] ", ++$n, "\n" or show('/run/gap-talker', $!); $s->flush; select undef, undef, undef, 0.02 }`

	shown = `sub show { open my $f, '>', "$_[0].new" or die; print {$f} $_[1]; close $f; rename "$_[0].new", $_[0] } `
)

// background runs a Perl program on a machine and leaves it running.
func background(ctx context.Context, m *bench.Machine, program string, args ...string) {
	GinkgoHelper()
	r := m.Input(ctx, shown+program, "cat >/run/p.$$; setsid perl /run/p.$$ "+strings.Join(args, " ")+" >/dev/null 2>&1 </dev/null &")
	Expect(r.Err()).To(Succeed())
}

// number reads a number that a machine shows.
func number(ctx context.Context, m *bench.Machine, path string) int {
	GinkgoHelper()
	r := m.Sh(ctx, "cat "+path)
	Expect(r.Err()).To(Succeed())
	n, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
	Expect(err).NotTo(HaveOccurred())
	return n
}

// behind is how far a machine's clock is from this machine's at most.
func behind(ctx context.Context, m *bench.Machine) time.Duration {
	GinkgoHelper()
	begun := time.Now()
	r := m.Sh(ctx, "date +%s%N")
	ended := time.Now()
	Expect(r.Err()).To(Succeed())
	n, err := strconv.ParseInt(strings.TrimSpace(r.Stdout), 10, 64)
	Expect(err).NotTo(HaveOccurred())
	switch at := time.Unix(0, n); {
	case at.Before(begun):
		return begun.Sub(at)
	case at.After(ended):
		return at.Sub(ended)
	}
	return 0
}

// labJSON runs a lab command that answers with JSON.
func labJSON(ctx context.Context, v any, args ...string) {
	GinkgoHelper()
	r := lab().Run(ctx, "", append(args, "--json")...)
	Expect(r.Err()).To(Succeed())
	Expect(json.Unmarshal([]byte(r.Stdout), v)).To(Succeed())
	AddReportEntry("took", fmt.Sprintf("%s: %.1f s", r.Command, r.Took.Seconds()))
}

var _ = Describe("Snapshots", Label("snapshot"), func() {
	It("cases L5 and L14: a scenario goes back as one, and on from there beside", func(ctx SpecContext) {
		mesh, r := lab().Raise(ctx, "trio", runID+"-trio")
		machines := []string{"one", "two", "three"}
		keep(mesh, machines)
		fork := lab().Mesh(runID + "-fork")
		DeferCleanup(func(ctx SpecContext) {
			for _, m := range []*bench.Mesh{mesh, fork} {
				forget(m)
				Expect(lab().Run(ctx, "", "destroy", m.Name, "--snapshots").Err()).To(Succeed())
			}
			Expect(traces(mesh.Name)).To(BeEmpty())
			Expect(traces(fork.Name)).To(BeEmpty())
		}, NodeTimeout(time.Minute))
		Expect(r.Err()).To(Succeed())
		one, two, three := mesh.Machine("one"), mesh.Machine("two"), mesh.Machine("three")

		By("counting on each machine, and telling each other over TCP")
		for _, m := range []*bench.Machine{one, two, three} {
			background(ctx, m, counter)
		}
		background(ctx, one, listener)
		background(ctx, two, listener)
		background(ctx, two, talker, "one.world.test", "two")
		background(ctx, three, talker, "one.world.test", "three")
		background(ctx, one, talker, "two.world.test", "one")
		Eventually(ctx, func() string { return one.Sh(ctx, "cat /run/heard-two /run/heard-three").Stderr }).
			WithTimeout(30 * time.Second).Should(BeEmpty())

		By("taking a snapshot under way")
		var taken struct {
			SkewSeconds float64 `json:"skew_seconds"`
		}
		labJSON(ctx, &taken, "snapshot", "take", mesh.Name, "first")
		Expect(taken.SkewSeconds).To(BeNumerically("<=", 0.05))
		AddReportEntry("skew", fmt.Sprintf("%.0f ms", taken.SkewSeconds*1000))
		then, heard := number(ctx, one, "/run/count"), number(ctx, one, "/run/heard-three")

		By("going on for a while")
		Eventually(ctx, func() int { return number(ctx, one, "/run/count") }).
			WithTimeout(time.Minute).Should(BeNumerically(">", then+100))
		Expect(one.Sh(ctx, "echo later >/root/later; sync; cut -d. -f1 /proc/uptime >/run/up").Err()).To(Succeed())
		up := number(ctx, one, "/run/up")

		By("going back: memory and disk are as they were, and count on")
		var restored struct {
			Machines []string `json:"machines"`
			NewRoots bool     `json:"new_roots"`
		}
		labJSON(ctx, &restored, "restore", mesh.Name, "first")
		Expect(restored.Machines).To(Equal(machines))
		Expect(restored.NewRoots).To(BeFalse(), "the world lived")
		Expect(behind(ctx, one)).To(BeNumerically("<", 100*time.Millisecond))
		Expect(one.Sh(ctx, "cut -d. -f1 /proc/uptime >/run/up").Err()).To(Succeed())
		Expect(number(ctx, one, "/run/up")).To(BeNumerically("<=", up), "time that only counts up goes on from the snapshot")
		back := number(ctx, one, "/run/count")
		Expect(back).To(BeNumerically("<", then+100))
		Expect(one.Sh(ctx, "test ! -e /root/later").Err()).To(Succeed())
		Eventually(ctx, func() int { return number(ctx, one, "/run/count") }).WithTimeout(30 * time.Second).Should(BeNumerically(">", back))

		By("hearing each other on the same sessions, every number once")
		Eventually(ctx, func() int { return number(ctx, one, "/run/heard-three") }).
			WithTimeout(30 * time.Second).Should(BeNumerically(">", heard+20))
		for _, m := range []*bench.Machine{one, two, three} {
			Expect(m.Sh(ctx, "cat /run/gap-* 2>/dev/null; true").Stdout).To(BeEmpty(), m.Name)
		}

		By("forking: the same addresses, and ways of its own")
		labJSON(ctx, &restored, "fork", mesh.Name, "--as", fork.Name)
		keep(fork, machines)
		Expect(restored.NewRoots).To(BeTrue())
		var status [2]labStatus
		Expect(mesh.Status(ctx, &status[0])).To(Succeed())
		Expect(fork.Status(ctx, &status[1])).To(Succeed())
		for i := range machines {
			Expect(status[1].Machines[i].Addresses).To(Equal(status[0].Machines[i].Addresses))
		}
		Expect(status[1].Run).NotTo(Equal(status[0].Run))
		Expect(fork.Machine("one").Sh(ctx, "touch /root/forked; getent hosts packages.world.test").Err()).To(Succeed())
		Expect(one.Sh(ctx, "test ! -e /root/forked").Err()).To(Succeed())
		forked := number(ctx, fork.Machine("two"), "/run/heard-one")
		Eventually(ctx, func() int { return number(ctx, fork.Machine("two"), "/run/heard-one") }).
			WithTimeout(30*time.Second).Should(BeNumerically(">", forked), "the sessions inside go on")
	}, SpecTimeout(6*time.Minute))
})
