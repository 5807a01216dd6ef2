package specs_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// asks are what tells machines apart, each with how a machine is asked for it.
// None may be alike in two clones of one warm image.
var asks = map[string]string{
	"machine id":                   "cat /etc/machine-id",
	"machine id, to systemd":       "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.DBus.Peer GetMachineId",
	"machine id, to the network":   "busctl call org.freedesktop.network1 /org/freedesktop/network1 org.freedesktop.DBus.Peer GetMachineId",
	"machine id, to the journal":   "ls /var/log/journal",
	"boot id":                      "cat /proc/sys/kernel/random/boot_id",
	"boot id, to the journal":      "journalctl --output=json --lines=1 --output-fields=_BOOT_ID | sed 's/.*_BOOT_ID\":\"//; s/\".*//'",
	"host name":                    "hostname",
	"host name, to the journal":    "journalctl --output=json --lines=1 --output-fields=_HOSTNAME | sed 's/.*_HOSTNAME\":\"//; s/\".*//'",
	"SSH host key":                 "cat /etc/ssh/ssh_host_ed25519_key.pub",
	"MAC":                          "cat /sys/class/net/eth0/address",
	"IPv4 address":                 "ip -4 -brief address show eth0",
	"IPv6 addresses":               "ip -6 -brief address show eth0",
	"random bytes of the kernel":   "cat /proc/sys/kernel/random/uuid",
	"random bytes of getrandom(2)": "head -c 16 /dev/urandom | od -An -tx1",
}

var _ = Describe("Warm starts", Label("lab", "warm"), func() {
	It("case L6: makes of one warm image machines that share nothing but their software", func(ctx SpecContext) {
		names := []string{"one", "two", "three"}
		mesh, raise := lab().Raise(ctx, "trio", runID+"-clones")
		keep(mesh, names)
		DeferCleanup(func(ctx SpecContext) {
			forget(mesh)
			Expect(mesh.Destroy(ctx).Err()).To(Succeed())
		}, NodeTimeout(time.Minute))
		Expect(raise.Err()).To(Succeed())

		var status struct {
			Machines []struct {
				Start        string  `json:"start"`
				ReadySeconds float64 `json:"ready_seconds"`
			} `json:"machines"`
		}
		Expect(mesh.Status(ctx, &status)).To(Succeed())
		for _, m := range status.Machines {
			Expect(m.Start).To(Equal("warm"))
			Expect(m.ReadySeconds).To(BeNumerically(">", 0))
		}

		By("asking each who it is")
		seen := map[string]map[string]string{} // by question: answer → machine
		for _, name := range names {
			for what, answer := range identityOf(ctx, mesh.Machine(name)) {
				if seen[what] == nil {
					seen[what] = map[string]string{}
				}
				Expect(seen[what]).NotTo(HaveKey(answer), "%s of %s", what, name)
				seen[what][answer] = name
			}
			Expect(seen["host name"]).To(HaveKeyWithValue(name, name))
		}

		By("case L5: comparing clocks")
		for _, name := range names {
			before := time.Now()
			r := mesh.Machine(name).Sh(ctx, "date --utc +%s.%N")
			after := time.Now()
			Expect(r.Err()).To(Succeed())
			seconds, err := time.ParseDuration(strings.TrimSpace(r.Stdout) + "s")
			Expect(err).NotTo(HaveOccurred())
			Expect(time.Unix(0, int64(seconds))).To(BeTemporally(">", before.Add(-100*time.Millisecond)), name)
			Expect(time.Unix(0, int64(seconds))).To(BeTemporally("<", after.Add(100*time.Millisecond)), name)
		}

		By("cutting the power of one: it is still itself when it has booted")
		one := mesh.Machine("one")
		lasting := "cat /etc/machine-id; hostname; cat /etc/ssh/ssh_host_ed25519_key.pub"
		was := one.Sh(ctx, lasting)
		Expect(was.Err()).To(Succeed())
		Expect(one.Cut(ctx).Err()).To(Succeed())
		Expect(one.PowerOn(ctx).Err()).To(Succeed())
		is := one.Sh(ctx, lasting)
		Expect(is.Err()).To(Succeed())
		Expect(is.Stdout).To(Equal(was.Stdout))
		Expect(mesh.Machine("two").Sh(ctx, "apt-get install --yes --quiet wireguard-tools && wg --version").Err()).To(Succeed(),
			"a user installs what the image offers")
	}, SpecTimeout(10*time.Minute))
})

// identityOf asks a machine everything in one go.
func identityOf(ctx SpecContext, m *bench.Machine) map[string]string {
	GinkgoHelper()
	var script strings.Builder
	for what, ask := range asks {
		script.WriteString("printf '%s\\t%s\\n' '" + what + "' \"$(" + ask + " | tr '\\n\\t' '  ')\"\n")
	}
	r := m.Sh(ctx, script.String())
	Expect(r.Err()).To(Succeed())
	answers := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		what, answer, _ := strings.Cut(strings.TrimSpace(line), "\t")
		Expect(strings.TrimSpace(answer)).NotTo(BeEmpty(), "%s of %s", what, m.Name)
		answers[what] = strings.TrimSpace(answer)
	}
	Expect(answers).To(HaveLen(len(asks)))
	return answers
}
