package specs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"mesh/specs/bench"
)

var _ = Describe("Seeing and reaching a scenario", Label("lab", "seeing"), Ordered, func() {
	var mesh *bench.Mesh
	var before network

	BeforeAll(func(ctx SpecContext) {
		before = thisMachinesNetwork()
		var raise bench.Result
		mesh, raise = lab().Raise(ctx, "single", runID+"-seen")
		keep(mesh, []string{"one"})
		DeferCleanup(func(ctx SpecContext) {
			forget(mesh)
			Expect(mesh.Destroy(ctx).Err()).To(Succeed()) // gone already: the last spec ends it
		}, NodeTimeout(time.Minute))
		Expect(raise.Err()).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("lets OpenSSH in by its own configuration, past nothing of this machine", func(ctx SpecContext) {
		if _, err := exec.LookPath("ssh"); err != nil {
			Skip("OpenSSH is not installed")
		}
		config := filepath.Join(GinkgoT().TempDir(), "config")
		r := lab().Run(ctx, "", "ssh-config", mesh.Name)
		Expect(r.Err()).To(Succeed())
		Expect(os.WriteFile(config, []byte(r.Stdout), 0o600)).To(Succeed())
		ssh := func(words ...string) string {
			GinkgoHelper()
			said, err := exec.CommandContext(ctx, "ssh", append([]string{"-F", config}, words...)...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(said))
			return strings.TrimSpace(string(said))
		}
		Expect(ssh("one", "hostname")).To(Equal("one"))
		Expect(ssh(mesh.Name+".one", "id", "-un")).To(Equal("root"))
		Expect(ssh("one", `echo "$SSH_CONNECTION"`)).To(HavePrefix("fe80::"), "the way in is no network of anybody's")
		Expect(lab().Run(ctx, "", "ssh", mesh.Name, "one", "--", "exit 7").Code).To(Equal(7))
		Expect(thisMachinesNetwork()).To(Equal(before))
	}, SpecTimeout(2*time.Minute))

	It("records when each line of a console came", func(ctx SpecContext) {
		Expect(mesh.Machine("one").Sh(ctx, "echo seen by the specs >/dev/console").Err()).To(Succeed())
		Eventually(ctx, func() string {
			return lab().Run(ctx, "", "console", mesh.Name, "one", "--timestamps").Stdout
		}).WithTimeout(10 * time.Second).Should(MatchRegexp(`(?m)^20[0-9-]{8}T[0-9:.]{12}Z .*seen by the specs`))
	}, SpecTimeout(time.Minute))

	It("collects what may explain a failure, with an index", func(ctx SpecContext) {
		dir := filepath.Join(GinkgoT().TempDir(), "evidence")
		Expect(mesh.Collect(ctx, dir)).To(Succeed())
		var index struct {
			Entries []struct {
				File    string `json:"file"`
				Problem string `json:"problem"`
			} `json:"entries"`
		}
		text, err := os.ReadFile(filepath.Join(dir, "index.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(text, &index)).To(Succeed())
		var files []string
		for _, e := range index.Entries {
			if e.File != "" {
				files = append(files, e.File)
				Expect(filepath.Join(dir, e.File)).To(BeARegularFile())
			}
		}
		Expect(files).To(ContainElements("record.json", "status.json", "world.log", "network/world.links.txt",
			"one/console.log", "one/console.stamped.log", "one/journal.log", "one/domain.xml"))
	}, SpecTimeout(3*time.Minute))

	It("tells what changes", func(ctx SpecContext) {
		cut := lab().Run(ctx, "", "power", "cut", mesh.Name, "one")
		Expect(cut.Err()).To(Succeed())
		seen := gbytes.NewBuffer()
		watch, err := lab().Start(ctx, seen, "watch", mesh.Name, "--json", "--every", "500ms")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, seen).WithTimeout(20 * time.Second).Should(gbytes.Say(`"machine":"one","what":"state","value":"off"`))
		forget(mesh)
		Expect(mesh.Destroy(ctx).Err()).To(Succeed())
		Expect(watch.Wait()).To(Succeed())
		Expect(seen).To(gbytes.Say(`"what":"phase","value":"gone"`))
	}, SpecTimeout(time.Minute))
})
