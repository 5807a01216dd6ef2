package specs_test

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// bundleFile is the first node's bundle, as the scenario places it.
func bundleFile() (string, error) {
	b, err := os.ReadFile("../scenarios/first-node/bundle.json")
	return string(b), err
}

// assign gives node two the demonstration module and waits until it stands.
func assign(ctx context.Context, w *walk) bench.HostStatus {
	GinkgoHelper()
	Expect(w.one.Sh(ctx, "mesh-plane assign two welcome").Err()).To(Succeed())
	return converged(ctx, w.two, declared(ctx, w))
}

// unassign takes it away again and waits until it is gone.
func unassign(ctx context.Context, w *walk) bench.HostStatus {
	GinkgoHelper()
	Expect(w.one.Sh(ctx, "mesh-plane unassign two welcome").Err()).To(Succeed())
	return converged(ctx, w.two, declared(ctx, w))
}

// declared is the generation that the plane declares for node two now.
func declared(ctx context.Context, w *walk) uint64 {
	GinkgoHelper()
	nodes, err := w.one.Nodes(ctx)
	Expect(err).NotTo(HaveOccurred())
	return nodes["two"].Declared.Generation
}

var _ = Describe("A node", Label("apply"), func() {
	var w *walk
	BeforeEach(func(ctx SpecContext) {
		w = theMesh(ctx)
		unassign(ctx, w) // whatever an earlier spec left
	}, NodeTimeout(16*time.Minute))

	It("holds what is assigned to it, and nothing of it after it is unassigned", func(ctx SpecContext) {
		status := assign(ctx, w)
		Expect(status.Statuses()).To(HaveLen(5))
		Expect(w.two.Sh(ctx, "curl --silent --show-error --fail http://localhost:8080/").Stdout).To(ContainSubstring("<html"))
		Eventually(ctx, func(ctx context.Context) (uint64, error) {
			nodes, err := w.one.Nodes(ctx)
			if err != nil || nodes["two"].Acknowledged == nil {
				return 0, err
			}
			return nodes["two"].Acknowledged.Generation, nil
		}).WithTimeout(time.Minute).WithPolling(time.Second).Should(Equal(declared(ctx, w)))

		By("a foreign file beside what the module made, and an edited file of the module")
		Expect(w.two.Sh(ctx, "echo mine > /srv/welcome/mine.txt").Err()).To(Succeed())
		status = unassign(ctx, w)
		Expect(status.Left).To(ContainElement(HaveField("Where", "/srv/welcome")))
		Expect(w.two.Sh(ctx, "cat /srv/welcome/mine.txt").Stdout).To(Equal("mine\n"))
		Expect(w.two.Sh(ctx, "ls /srv/welcome").Stdout).To(Equal("mine.txt\n"))
		Expect(w.two.Sh(ctx, "test -e /etc/nginx/conf.d/welcome.conf").Code).To(Equal(1))
		Expect(w.two.Sh(ctx, "dpkg-query --show --showformat='${db:Status-Abbrev}' nginx").Stdout).NotTo(HavePrefix("ii"))
		Expect(w.two.Sh(ctx, "systemctl is-active nginx").Stdout).NotTo(Equal("active\n"))
		Expect(w.two.Sh(ctx, "rm -r /srv/welcome").Err()).To(Succeed())
	}, SpecTimeout(10*time.Minute))

	It("puts right what drifted", func(ctx SpecContext) {
		assign(ctx, w)
		Expect(w.two.Sh(ctx, `echo changed > /srv/welcome/index.html
chmod 0777 /srv/welcome
rm /etc/nginx/conf.d/welcome.conf
systemctl stop nginx`).Err()).To(Succeed())
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			g.Expect(w.two.Sh(ctx, "cat /srv/welcome/index.html").Stdout).To(ContainSubstring("<html"))
			g.Expect(w.two.Sh(ctx, "stat --format=%a /srv/welcome").Stdout).To(Equal("755\n"))
			g.Expect(w.two.Sh(ctx, "curl --silent --fail http://localhost:8080/").Code).To(BeZero())
		}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
	}, SpecTimeout(10*time.Minute))

	It("goes on without the plane, says so, and comes back by itself", Label("power"), func(ctx SpecContext) {
		assign(ctx, w)
		By("cutting the plane's machine")
		Expect(w.one.Cut(ctx).Err()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) (string, error) {
			status, err := w.two.Host(ctx)
			return status.State, err
		}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal("disconnected"))

		By("drifting while there is no plane")
		Expect(w.two.Sh(ctx, "rm /srv/welcome/index.html").Err()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) int {
			return w.two.Sh(ctx, "test -s /srv/welcome/index.html").Code
		}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(BeZero())

		By("giving the plane's machine its power back")
		Expect(w.one.PowerOn(ctx).Err()).To(Succeed())
		status := converged(ctx, w.two, 1)
		Expect(status.State).To(Equal("enrolled"))
		converged(ctx, w.one, 1)
	}, SpecTimeout(12*time.Minute))

	It("applies the rest when its power was cut in the middle of an apply", Label("power"), func(ctx SpecContext) {
		Expect(w.one.Sh(ctx, "mesh-plane assign two welcome").Err()).To(Succeed())
		By("waiting until the package is being installed")
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			status, err := w.two.Host(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Pass.Activity).NotTo(BeNil())
			g.Expect(status.Pass.Activity.ID).To(Equal("welcome/package"))
		}).WithTimeout(2 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(w.two.Cut(ctx).Err()).To(Succeed())
		Expect(w.two.PowerOn(ctx).Err()).To(Succeed())

		status := converged(ctx, w.two, declared(ctx, w))
		Expect(status.Statuses()).To(HaveLen(5))
		Expect(status.Owed).To(BeEmpty())
		Expect(w.two.Sh(ctx, "dpkg --audit").Stdout).To(BeEmpty())
		Expect(w.two.Sh(ctx, "curl --silent --show-error --fail http://localhost:8080/").Stdout).To(ContainSubstring("<html"))
		By("owning all of it: nothing is left behind when it goes")
		unassign(ctx, w)
		Expect(w.two.Sh(ctx, "ls -A /srv; ls /etc/nginx/conf.d").Stdout).NotTo(ContainSubstring("welcome"))
	}, SpecTimeout(12*time.Minute))
})
