package specs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// walk is what was seen on the way from two bare machines to a mesh of two
// nodes. It is gone once for the whole run; specs look at what it saw, and use
// the mesh that it left.
type walk struct {
	mesh     *bench.Mesh
	one, two *bench.Machine

	installed   bench.HostStatus // machine one: after adoption command one
	reconciled  bench.HostStatus // after the bundle
	raised      string           // what the bundle raised, as it was before the handover
	handedOver  string           // the same, after the first declaration
	enrolled    bench.HostStatus // after adoption command two, converged
	spent       string           // the token that enrolled machine one
	refused     map[string]refusal
	secondState bench.HostStatus // machine two, converged on its first declaration
}

// refusal is how enrolling with a bad token ended on a machine.
type refusal struct {
	result        bench.Result
	before, after string // the host's own files, with their digests
}

var (
	walkOnce sync.Once
	walked   *walk
	errWalk  = errors.New("the path to a mesh of two nodes was not walked to its end")
)

// theMesh walks the path at its first call; later calls return what the first
// one left, or fail where it failed.
func theMesh(ctx context.Context) *walk {
	GinkgoHelper()
	walkOnce.Do(func() {
		w := &walk{refused: map[string]refusal{}}
		w.raise(ctx)
		w.walkFirst(ctx)
		w.tryTokens(ctx)
		w.walkSecond(ctx)
		walked, errWalk = w, nil
	})
	Expect(errWalk).NotTo(HaveOccurred())
	return walked
}

var _ = AfterSuite(func(ctx SpecContext) {
	for mesh := range standing() {
		Expect(mesh.Destroy(ctx).Err()).To(Succeed())
	}
}, NodeTimeout(3*time.Minute))

func (w *walk) raise(ctx context.Context) {
	GinkgoHelper()
	By("raising two machines")
	mesh, result := lab().Raise(ctx, "first-node", runID+"-mesh", "--no-place")
	keep(mesh, []string{"one", "two"})
	w.mesh, w.one, w.two = mesh, mesh.Machine("one"), mesh.Machine("two")
	Expect(result.Err()).To(Succeed())
}

// whatTheBundleRaised tells one raising from another: the process, and the very
// files, of the plane.
const whatTheBundleRaised = `systemctl show --property=MainPID --property=ActiveEnterTimestamp mesh-plane
stat --format='%n %i %y %U %a' /etc/mesh-plane/plane.yaml
dpkg-query --show mesh-plane`

func (w *walk) walkFirst(ctx context.Context) {
	GinkgoHelper()
	By("installing the host on machine one")
	w.installed = install(ctx, w.one)

	By("reconciling the bundle")
	bundle, err := bundleFile()
	Expect(err).NotTo(HaveOccurred())
	Expect(w.one.Write(ctx, "/root/bundle.json", bundle)).To(Succeed())
	Expect(w.one.Sh(ctx, "mesh-host reconcile /root/bundle.json").Err()).To(Succeed())
	w.reconciled, err = w.one.Host(ctx)
	Expect(err).NotTo(HaveOccurred())
	w.raised = w.one.Sh(ctx, whatTheBundleRaised).Stdout

	By("enrolling machine one with the plane that it raised")
	token, err := w.one.Token(ctx, "--name one")
	Expect(err).NotTo(HaveOccurred())
	Expect(w.one.Input(ctx, token+"\n", "mesh-host enrol -").Err()).To(Succeed())
	w.enrolled = converged(ctx, w.one, 1)
	w.handedOver = w.one.Sh(ctx, whatTheBundleRaised).Stdout
	w.spent = token
}

// hostFiles lists the host's own durable files with their digests, but for the
// program itself, which is kept once it has run for a minute.
const hostFiles = `cd /var/lib/mesh-host && find . -type f -not -name '*lock*' -not -path './program/*' | sort | xargs --no-run-if-empty sha256sum`

func (w *walk) tryTokens(ctx context.Context) {
	GinkgoHelper()
	By("trying bad tokens on machine two")
	install(ctx, w.two)
	good, err := w.one.Token(ctx, "--name spare")
	Expect(err).NotTo(HaveOccurred())
	short, err := w.one.Token(ctx, "--name late --expires 1s")
	Expect(err).NotTo(HaveOccurred())
	letter := "q"
	if strings.HasSuffix(good[:40], letter) {
		letter = "r"
	}
	for name, token := range map[string]string{
		"spent":                   w.spent,
		"expired":                 short, // a second is long over when the machine has answered
		"cut short":               good[:len(good)-7],
		"with one letter changed": good[:39] + letter + good[40:],
	} {
		r := refusal{before: w.two.Sh(ctx, hostFiles).Stdout}
		r.result = w.two.Input(ctx, token+"\n", "mesh-host enrol -")
		r.after = w.two.Sh(ctx, hostFiles).Stdout
		w.refused[name] = r
	}
}

func (w *walk) walkSecond(ctx context.Context) {
	GinkgoHelper()
	By("enrolling machine two, from behind a router")
	token, err := w.one.Token(ctx, "--name two")
	Expect(err).NotTo(HaveOccurred())
	Expect(w.two.Input(ctx, token+"\n", "mesh-host enrol -").Err()).To(Succeed())
	w.secondState = converged(ctx, w.two, 1)
}

// install installs the host as an operator does, and returns its first status.
func install(ctx context.Context, m *bench.Machine) bench.HostStatus {
	GinkgoHelper()
	Expect(m.Sh(ctx, "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y mesh-host").Err()).To(Succeed())
	status, err := m.Host(ctx)
	Expect(err).NotTo(HaveOccurred())
	return status
}

// converged waits until a node is connected and holds a declaration of at least
// generation, applied.
func converged(ctx context.Context, m *bench.Machine, generation uint64) bench.HostStatus {
	GinkgoHelper()
	var status bench.HostStatus
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		var err error
		status, err = m.Host(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.State).To(Equal("enrolled"))
		g.Expect(status.Declaration).NotTo(BeNil())
		g.Expect(status.Declaration.Source).To(Equal("plane"))
		g.Expect(status.Declaration.Generation).To(BeNumerically(">=", generation))
		g.Expect(status.Converged).To(BeTrue(), "%+v", status)
	}).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(Succeed())
	return status
}

// saidByMachine is what a command on a machine wrote to its stderr, by lines,
// without what the lab had to say beside it.
func saidByMachine(r bench.Result) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(r.Stderr), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "lab: ")
	})
}

var _ = Describe("The first node", Label("enrolment"), func() {
	It("is hosted once its package is installed", func(ctx SpecContext) {
		w := theMesh(ctx)
		Expect(w.installed.State).To(Equal("hosted"))
		Expect(w.installed.Resources).To(BeEmpty())
	}, SpecTimeout(15*time.Minute))

	It("raises the plane from a bundle and owns what it raised", func(ctx SpecContext) {
		w := theMesh(ctx)
		Expect(w.reconciled.State).To(Equal("hosted"))
		Expect(w.reconciled.Converged).To(BeTrue(), "%+v", w.reconciled)
		Expect(w.reconciled.Statuses()).To(HaveKey("plane/service"))
		for _, r := range w.reconciled.Resources {
			Expect(r.Owned).NotTo(BeNil(), r.ID)
		}
	}, SpecTimeout(15*time.Minute))

	It("is then a node like any other, and the handover changes nothing it raised", func(ctx SpecContext) {
		w := theMesh(ctx)
		Expect(w.enrolled.Member.Node).To(Equal("one"))
		Expect(w.handedOver).To(Equal(w.raised))
		for id, status := range w.enrolled.Statuses() {
			Expect(status).To(Equal("in_sync"), id)
		}
		Expect(w.enrolled.Statuses()).To(HaveLen(len(w.reconciled.Resources)))
		nodes, err := w.one.Nodes(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes["one"].Modules).To(ContainElement("plane"))
		Expect(nodes["one"].State).To(Equal("connected"))
	}, SpecTimeout(15*time.Minute))

	It("keeps its plane: the module cannot be taken away", func(ctx SpecContext) {
		r := theMesh(ctx).one.Sh(ctx, "mesh-plane unassign one plane")
		Expect(r.Code).NotTo(BeZero())
		Expect(r.Stderr).To(ContainSubstring("plane"))
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("The second node", Label("enrolment"), func() {
	It("enrols from behind a router and holds its declaration", func(ctx SpecContext) {
		w := theMesh(ctx)
		Expect(w.secondState.Member.Mesh).To(Equal("home"))
		Expect(w.secondState.Member.Node).To(Equal("two"))
		nodes, err := w.one.Nodes(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes).To(HaveKey("two"))
		Expect(nodes["two"].Addresses).NotTo(Equal(nodes["one"].Addresses))
		Expect(nodes["two"].Addresses).To(HaveLen(2))
	}, SpecTimeout(15*time.Minute))

	DescribeTable("refuses a token, in one line, and stays as it was",
		func(ctx SpecContext, name, says string) {
			r := theMesh(ctx).refused[name]
			Expect(r.result.Code).To(BeElementOf(1, 2), r.result.String())
			Expect(saidByMachine(r.result)).To(HaveLen(1))
			Expect(r.result.Stderr).To(ContainSubstring(says))
			Expect(r.after).To(Equal(r.before))
		},
		Entry("case P9: spent", "spent", "used already", SpecTimeout(15*time.Minute)),
		Entry("expired", "expired", "expired", SpecTimeout(15*time.Minute)),
		Entry("cut short", "cut short", "", SpecTimeout(15*time.Minute)),
		Entry("with one letter changed", "with one letter changed", "", SpecTimeout(15*time.Minute)),
	)
})

var _ = Describe("The plane", Label("plane"), func() {
	It("takes a new configuration while it runs, and keeps its nodes", func(ctx SpecContext) {
		w := theMesh(ctx)
		before := w.one.Sh(ctx, whatTheBundleRaised).Stdout
		Expect(w.one.Sh(ctx, `sed 's|  - "203.0.113.10:7443"|&\n  - "[2001:db8:113::10]:7443"|' /etc/mesh-plane/plane.yaml >/root/plane.yaml
mesh-plane config apply /root/plane.yaml`).Err()).To(Succeed())
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			g.Expect(w.one.Sh(ctx, "cmp /root/plane.yaml /etc/mesh-plane/plane.yaml").Code).To(BeZero())
			g.Expect(w.one.Sh(ctx, whatTheBundleRaised).Stdout).NotTo(Equal(before))
			nodes, err := w.one.Nodes(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for _, name := range []string{"one", "two"} {
				g.Expect(nodes[name].State).To(Equal("connected"), name)
				g.Expect(nodes[name].Acknowledged).NotTo(BeNil())
				g.Expect(nodes[name].Acknowledged.Generation).To(Equal(nodes[name].Declared.Generation), name)
			}
		}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Succeed())
		converged(ctx, w.one, 2)
	}, SpecTimeout(15*time.Minute))
})
