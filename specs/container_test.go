package specs_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// shop is a program in two images, which the packages' service of a world offers
// beside the project's packages.
type shop struct {
	packages      string // directory of all that machines are offered
	first, second string // images, by their digests
}

// newShop builds the program and packs it; nothing is fetched.
func newShop(ctx context.Context, dir string) (shop, error) {
	program := filepath.Join(dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, "./testdata/shop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return shop{}, fmt.Errorf("build the program of the containers: %w: %s", err, out)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return shop{}, err
	}
	s := shop{packages: filepath.Join(dir, "packages")}
	if err := os.Mkdir(s.packages, 0o755); err != nil {
		return shop{}, err
	}
	debs, err := filepath.Glob(filepath.Join(*packagesDir, "*.deb"))
	if err != nil {
		return shop{}, err
	}
	for _, deb := range debs {
		content, err := os.ReadFile(deb)
		if err != nil {
			return shop{}, err
		}
		if err := os.WriteFile(filepath.Join(s.packages, filepath.Base(deb)), content, 0o644); err != nil {
			return shop{}, err
		}
	}
	for name, image := range map[string]*string{"first": &s.first, "second": &s.second} {
		layout, digest, err := bench.Image(binary, name)
		if err != nil {
			return shop{}, err
		}
		*image = "packages.world.test/mesh/shop@" + digest
		if err := os.WriteFile(filepath.Join(s.packages, name+".oci.tar"), layout, 0o644); err != nil {
			return shop{}, err
		}
	}
	return s, nil
}

// declare is a bundle with one container of an image, and all that it needs.
func (s shop) declare(image, secret string) (string, error) {
	type members map[string]any
	file := func(id, path, mode, content string) members {
		return members{"id": id, "file": members{"path": path, "mode": mode, "content": content}}
	}
	b, err := json.Marshal(members{"format": 3, "resources": []members{
		{"id": "shop/podman", "package": members{"name": "podman"}},
		file("shop/registry", "/etc/containers/registries.conf.d/world.conf", "0644", "[[registry]]\nlocation = \"packages.world.test\"\ninsecure = true\n"),
		{"id": "shop/directory", "directory": members{"path": "/etc/shop"}},
		file("shop/key", "/etc/shop/key", "0600", secret),
		{"id": "shop/data", "directory": members{"path": "/srv/shop"}},
		{"id": "shop/shop", "container": members{
			"name": "shop", "image": image, "arguments": []string{"a b", "100 % $HOME"},
			"environment": []members{{"name": "GREETING", "value": `hello "you" $HOME`}},
			"ports":       []members{{"port": 8080, "to": 80}},
			"volumes":     []members{{"source": "/srv/shop", "target": "/data"}, {"source": "cache", "target": "/cache"}},
			"secrets":     []members{{"name": "key", "path": "/etc/shop/key"}},
			"restart_on":  []string{"shop/key"},
		}},
	}})
	return string(b), err
}

// digestOf is the digest that an image is named by.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// answers is what the program says with a secret.
func answers(secret string) string {
	return fmt.Sprintf(`["a b" "100 %% $HOME"] "hello \"you\" $HOME" %x`, sha256.Sum256([]byte(secret)))
}

// whatRuns names the container that runs, and the run of its service.
const whatRuns = `podman container inspect --format '{{.Id}}' mesh-shop; systemctl show --property=InvocationID mesh-shop.service`

var _ = Describe("A container", Label("apply", "container"), Ordered, func() {
	var (
		s   shop
		one *bench.Machine
	)
	reconcile := func(ctx context.Context, image, secret string) bench.HostStatus {
		GinkgoHelper()
		bundle, err := s.declare(image, secret)
		Expect(err).NotTo(HaveOccurred())
		Expect(one.Write(ctx, "/root/shop.json", bundle)).To(Succeed())
		Expect(one.Sh(ctx, "mesh-host reconcile /root/shop.json").Err()).To(Succeed())
		status, err := one.Host(ctx)
		Expect(err).NotTo(HaveOccurred())
		return status
	}
	// Whoever calls while podman makes the container's network is answered by nobody.
	says := func(ctx context.Context) string {
		return strings.TrimSpace(one.Sh(ctx, "timeout 10 bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && cat <&3'").Stdout)
	}

	BeforeAll(func(ctx SpecContext) {
		var err error
		s, err = newShop(ctx, GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		offering := lab()
		offering.Packages = s.packages
		mesh, result := offering.Raise(ctx, "single", runID+"-shop", "--no-place")
		keep(mesh, []string{"one"})
		DeferCleanup(func(ctx SpecContext) {
			Expect(mesh.Destroy(ctx).Err()).To(Succeed())
			forget(mesh)
		}, NodeTimeout(3*time.Minute))
		Expect(result.Err()).To(Succeed())
		one = mesh.Machine("one")
		install(ctx, one)
	}, NodeTimeout(6*time.Minute))

	It("comes with podman, is given its secret, and shows it to nobody", func(ctx SpecContext) {
		const secret = "a secret of the shop\n"
		status := reconcile(ctx, s.first, secret)
		Expect(status.Statuses()).To(HaveKeyWithValue("shop/shop", "changed"))
		Expect(says(ctx)).To(Equal(answers(secret)))

		for what, script := range map[string]string{
			"podman":       "podman container inspect mesh-shop; podman image inspect --format json " + s.first,
			"systemd":      "systemctl cat mesh-shop.service; systemctl show mesh-shop.service",
			"processes":    "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ",
			"the journal":  "journalctl --no-pager",
			"the host":     "mesh-host status --json; mesh-host why shop --json",
			"podman's own": "grep --recursive --text --only-matching 'a secret of the shop' /var/lib/containers /run/containers /run/systemd /etc/containers || true",
		} {
			Expect(one.Sh(ctx, script).Stdout).NotTo(ContainSubstring("a secret of the shop"), what)
		}
	}, SpecTimeout(8*time.Minute))

	It("is not touched by the same once more, and is replaced once by another digest", func(ctx SpecContext) {
		const secret = "a secret of the shop\n"
		before := one.Sh(ctx, whatRuns).Stdout
		Expect(reconcile(ctx, s.first, secret).Statuses()).To(HaveKeyWithValue("shop/shop", "in_sync"))
		Expect(one.Sh(ctx, whatRuns).Stdout).To(Equal(before))

		Expect(reconcile(ctx, s.second, secret).Statuses()).To(HaveKeyWithValue("shop/shop", "changed"))
		Expect(one.Sh(ctx, whatRuns).Stdout).NotTo(Equal(before))
		Expect(one.Sh(ctx, "podman container inspect --format '{{.ImageName}}' mesh-shop").Stdout).To(ContainSubstring(s.second))
		Expect(one.Sh(ctx, "podman images --all --no-trunc --format '{{.Digest}}'").Stdout).To(Equal(digestOf(s.second) + "\n"))
		Expect(one.Sh(ctx, "journalctl --no-pager --unit=mesh-shop.service | grep --count ': Started mesh-shop.service'").Stdout).To(Equal("2\n"))

		Expect(reconcile(ctx, s.second, "another\n").Statuses()).To(HaveKeyWithValue("shop/shop", "changed"))
		Expect(says(ctx)).To(Equal(answers("another\n")))
	}, SpecTimeout(6*time.Minute))

	It("comes back when somebody removes it, or its file, and after a power cut", func(ctx SpecContext) {
		Expect(one.Sh(ctx, "systemctl stop mesh-shop.service && rm /etc/containers/systemd/mesh-shop.container && systemctl daemon-reload").Err()).To(Succeed())
		reconcile(ctx, s.second, "another\n")
		Expect(says(ctx)).To(Equal(answers("another\n")))

		Expect(one.Cut(ctx).Err()).To(Succeed())
		Expect(one.PowerOn(ctx).Err()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) string { return says(ctx) }).
			WithTimeout(2 * time.Minute).WithPolling(2 * time.Second).Should(Equal(answers("another\n")))
	}, SpecTimeout(6*time.Minute))

	It("is run by a podman that does what its fake does", func(ctx SpecContext) {
		conforms(ctx, one, "TestConformanceOfPodman", "-podman="+s.first)
	}, SpecTimeout(5*time.Minute))

	It("goes with all that was made for it", func(ctx SpecContext) {
		Expect(one.Write(ctx, "/root/nothing.json", `{"format":1,"resources":[]}`)).To(Succeed())
		Expect(one.Sh(ctx, "mesh-host reconcile /root/nothing.json").Err()).To(Succeed())
		Expect(one.Sh(ctx, "systemctl is-active mesh-shop.service").Stdout).To(Equal("inactive\n"))
		Expect(one.Sh(ctx, "ls /etc/containers/systemd/ /etc/shop /usr/bin/podman /srv/shop 2>/dev/null").Stdout).NotTo(ContainSubstring("shop"))
		Expect(one.Sh(ctx, "cat /var/lib/containers/storage/overlay-images/images.json").Stdout).NotTo(ContainSubstring(digestOf(s.second)))
		status, err := one.Host(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(status.Left).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))
})
