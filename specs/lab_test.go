package specs_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// traces lists everything on this machine that carries a scenario's name:
// processes, directories, sockets.
func traces(name string) []string {
	GinkgoHelper()
	var found []string
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	for _, p := range processes {
		line, err := os.ReadFile(p)
		if err == nil && !strings.Contains(p, "/self/") && bytes.Contains(line, []byte(name)) {
			found = append(found, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	for _, pattern := range []string{
		"/var/lib/mesh-lab/scenarios/*" + name + "*", "/run/mesh-lab/*" + name + "*",
		"/run/libvirt/qemu/*" + name + "*", "/etc/libvirt/qemu/*" + name + "*",
	} {
		paths, err := filepath.Glob(pattern)
		Expect(err).NotTo(HaveOccurred())
		found = append(found, paths...)
	}
	return found
}

// network is what scenarios must not change on this machine.
type network struct{ links, addresses []string }

func thisMachinesNetwork() (n network) {
	GinkgoHelper()
	links, err := net.Interfaces()
	Expect(err).NotTo(HaveOccurred())
	for _, l := range links {
		n.links = append(n.links, l.Name)
		addresses, err := l.Addrs()
		Expect(err).NotTo(HaveOccurred())
		for _, a := range addresses {
			n.addresses = append(n.addresses, a.String())
		}
	}
	slices.Sort(n.links)
	return n
}

// namespaces lists the named network namespaces of one raise.
func namespaces(run string) []string {
	GinkgoHelper()
	Expect(run).NotTo(BeEmpty())
	all, err := filepath.Glob("/run/netns/ml-" + run + "*")
	Expect(err).NotTo(HaveOccurred())
	return all
}

type labStatus struct {
	Run      string `json:"run"`
	Phase    string `json:"phase"`
	Machines []struct {
		Name        string `json:"name"`
		State       string `json:"state"`
		Agent       bool   `json:"agent"`
		Accelerator string `json:"accelerator"`
		Addresses   []struct {
			IPv4 string `json:"ipv4"`
			IPv6 string `json:"ipv6"`
			MAC  string `json:"mac"`
		} `json:"addresses"`
	} `json:"machines"`
}

var _ = Describe("The lab", Label("lab"), func() {
	It("case L1: raises one scenario twice, at once, with the same addresses inside", func(ctx SpecContext) {
		before := thisMachinesNetwork()
		var meshes [2]*bench.Mesh
		var results [2]bench.Result
		var raising sync.WaitGroup
		for i, name := range []string{"-left", "-right"} {
			raising.Go(func() {
				meshes[i], results[i] = lab().Raise(ctx, "single", runID+name)
				keep(meshes[i], []string{"one"})
			})
		}
		raising.Wait()
		left, right := meshes[0], meshes[1]
		DeferCleanup(func(ctx SpecContext) {
			for mesh := range standing() {
				if mesh == left || mesh == right {
					forget(mesh)
					Expect(mesh.Destroy(ctx).Err()).To(Succeed())
				}
			}
		}, NodeTimeout(time.Minute))
		Expect(results[0].Err()).To(Succeed())
		Expect(results[1].Err()).To(Succeed())

		By("looking at both: the same inside, and nothing of it on this machine")
		var seen [2]labStatus
		for i, mesh := range meshes {
			Expect(mesh.Status(ctx, &seen[i])).To(Succeed())
			Expect(seen[i].Machines).To(HaveLen(1))
			Expect(seen[i].Machines[0].Agent).To(BeTrue())
			Expect(seen[i].Machines[0].Accelerator).NotTo(BeEmpty())
		}
		Expect(seen[0].Machines[0].Addresses).To(Equal(seen[1].Machines[0].Addresses))
		Expect(thisMachinesNetwork()).To(Equal(before))
		Expect(namespaces(seen[0].Run)).NotTo(BeEmpty())

		By("destroying one: the other goes on, and nothing of the first is left")
		forget(left)
		Expect(left.Destroy(ctx).Err()).To(Succeed())
		Expect(traces(left.Name)).To(BeEmpty())
		Expect(namespaces(seen[0].Run)).To(BeEmpty())
		Expect(left.Destroy(ctx).Err()).To(Succeed(), "destroying what is gone")
		Expect(right.Machine("one").Sh(ctx, "getent hosts packages.world.test").Err()).To(Succeed())

		forget(right)
		Expect(right.Destroy(ctx).Err()).To(Succeed())
		Expect(traces(right.Name)).To(BeEmpty())
		Expect(namespaces(seen[1].Run)).To(BeEmpty())
		Expect(thisMachinesNetwork()).To(Equal(before))
	}, SpecTimeout(8*time.Minute))

	It("case L2: leaves nothing behind when a raise is killed and then destroyed", Label("hazard"), func(ctx SpecContext) {
		before := thisMachinesNetwork()
		name := runID + "-killed"
		killed, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd, err := lab().Start(killed, GinkgoWriter, "raise", "single", "--as", name)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() []string { return traces("guest=mesh-" + name) }).
			WithTimeout(2 * time.Minute).WithPolling(100 * time.Millisecond).ShouldNot(BeEmpty())
		Expect(cmd.Process.Kill()).To(Succeed())
		_ = cmd.Wait() // it was killed
		var status labStatus
		Expect(lab().Mesh(name).Status(ctx, &status)).To(Succeed())

		By("the next command of any kind says so")
		Expect(lab().Run(ctx, "", "list").Stderr).To(ContainSubstring(name))
		Expect(lab().Run(ctx, "", "destroy", name).Err()).To(Succeed())
		Expect(traces(name)).To(BeEmpty())
		Expect(namespaces(status.Run)).To(BeEmpty())
		Expect(thisMachinesNetwork()).To(Equal(before))
	}, SpecTimeout(5*time.Minute))

	DescribeTable("refuses bad input and makes nothing",
		func(ctx SpecContext, code int, says string, args ...string) {
			r := lab().Run(ctx, "", args...)
			Expect(r.Code).To(Equal(code), r.String())
			Expect(r.Stderr).To(ContainSubstring(says))
		},
		Entry("an unknown scenario", 2, "first-node", "raise", "frist-node"),
		Entry("a name that is none", 2, "Ä", "raise", "single", "--as", "Ä"),
		Entry("an accelerator that is none", 2, "auto", "raise", "single", "--accelerator", "fast"),
	)
})
