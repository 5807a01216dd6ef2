package specs_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

var _ = Describe("Roaming", Label("lab", "roam"), func() {
	It("a laptop goes from site to site, and a home to another provider, as declared", func(ctx SpecContext) {
		mesh, r := lab().Raise(ctx, "sites", runID+"-sites")
		keep(mesh, []string{"one", "two", "three", "laptop"})
		DeferCleanup(func(ctx SpecContext) {
			forget(mesh)
			Expect(lab().Run(ctx, "", "destroy", mesh.Name).Err()).To(Succeed())
			Expect(traces(mesh.Name)).To(BeEmpty())
		}, NodeTimeout(time.Minute))
		Expect(r.Err()).To(Succeed())

		// as whom a machine calls the world, by name and IPv4.
		calls := func(m *bench.Machine) string {
			GinkgoHelper()
			r := m.Sh(ctx, "curl --silent --show-error --ipv4 --output /dev/null --max-time 20 --write-out '%{local_ip}' http://packages.world.test/")
			Expect(r.Err()).To(Succeed())
			return strings.TrimSpace(r.Stdout)
		}
		stands := func(name string) string {
			GinkgoHelper()
			var s struct {
				Roamers []struct{ Name, At string }
			}
			labJSON(ctx, &s, "status", mesh.Name)
			for _, r := range s.Roamers {
				if r.Name == name {
					return r.At
				}
			}
			return ""
		}
		laptop := mesh.Machine("laptop")
		for _, to := range []struct{ segment, address string }{
			{"office", "198.51.100.11"}, {"mobile", "100.64.0.10"}, {"cabin", "192.168.2.11"}, {"home", "192.168.1.11"},
		} {
			By("taking the laptop to " + to.segment)
			Expect(lab().Run(ctx, "", "roam", mesh.Name, "laptop", to.segment).Err()).To(Succeed())
			Expect(calls(laptop)).To(Equal(to.address))
			Expect(stands("laptop")).To(Equal(to.segment))
		}
		for _, to := range []string{"mobile", "internet"} {
			By("letting the home go by " + to)
			Expect(lab().Run(ctx, "", "roam", mesh.Name, "home-box", to).Err()).To(Succeed())
			Expect(calls(mesh.Machine("one"))).To(Equal("192.168.1.10"))
		}
		By("refusing what is not declared")
		r = lab().Run(ctx, "", "roam", mesh.Name, "three", "home")
		Expect(r.Err()).To(MatchError(ContainSubstring("does not roam")))
	}, SpecTimeout(8*time.Minute))
})
