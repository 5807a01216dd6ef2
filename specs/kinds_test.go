package specs_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

// prepareSources makes, on a machine, a package to be named by its digest, which is
// printed with its length, a source of apt called "demo" with another, and a file.
const prepareSources = `set -e
build() {
	mkdir -p /root/$1/DEBIAN
	printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@world.test>\nDescription: a demonstration\n' $1 $2 >/root/$1/DEBIAN/control
	dpkg-deb --build /root/$1 $3 >/dev/null
}
mkdir -p /root/content /srv/demo/pool /srv/demo/dists/demo/main/binary-amd64
build demo-blob 1.0 /root/blob.deb
digest=$(sha256sum </root/blob.deb | cut -d' ' -f1)
mv /root/blob.deb /root/content/$digest
build demo-offered 2.0 /srv/demo/pool/demo-offered.deb
cd /srv/demo
{
	cat /root/demo-offered/DEBIAN/control
	echo "Filename: pool/demo-offered.deb"
	echo "Size: $(stat --format=%s pool/demo-offered.deb)"
	echo "SHA256: $(sha256sum <pool/demo-offered.deb | cut -d' ' -f1)"
} >dists/demo/main/binary-amd64/Packages
{
	printf 'Suite: demo\nCodename: demo\nComponents: main\nArchitectures: amd64 all\nSHA256:\n'
	echo " $(sha256sum <dists/demo/main/binary-amd64/Packages | cut -d' ' -f1) $(stat --format=%s dists/demo/main/binary-amd64/Packages) main/binary-amd64/Packages"
} >dists/demo/Release
echo 'deb [trusted=yes] file:/srv/demo demo main' >/etc/apt/sources.list.d/demo.list
echo theirs >/etc/theirs
echo $digest $(stat --format=%s /root/content/$digest)
`

// demoUnit says on a file when it was started, and when it was told to read its
// configuration again.
const demoUnit = `[Service]
ExecStart=/bin/sh -c 'echo started >>/run/demo.log; exec sleep infinity'
ExecReload=/bin/sh -c 'echo reloaded >>/run/demo.log'
[Install]
WantedBy=multi-user.target
`

// kindsBundle is a bundle of the kinds of resources that the demonstration module
// has not, with a configuration file.
func kindsBundle(digest string, bytes int64, configuration string) string {
	type m = map[string]any
	text, err := json.Marshal(m{"format": 2, "resources": []m{
		{"id": "demo/directory", "directory": m{"path": "/etc/demo"}},
		{"id": "demo/once", "file": m{"path": "/etc/demo/once", "content": "once\n", "policy": "once"}},
		{"id": "demo/report", "file": m{"path": "/etc/theirs", "content": "another\n", "policy": "report"}},
		{"id": "demo/offered", "package": m{"name": "demo-offered", "release": "demo"}},
		{"id": "demo/blob", "package": m{"name": "demo-blob", "version": "1.0", "blob": m{"digest": digest, "bytes": bytes}}},
		{"id": "demo/unit", "file": m{"path": "/etc/systemd/system/demo.service", "content": demoUnit}},
		{"id": "demo/conf", "file": m{"path": "/etc/demo/conf", "content": configuration, "validate": []string{"/usr/bin/grep", "-q", "good", "{}"}, "policy": "keep-copy"}},
		{"id": "demo/service", "service": m{"unit": "demo.service", "restart_on": []string{"demo/unit"}, "reload_on": []string{"demo/conf"}}},
		{"id": "demo/masked", "service": m{"unit": "systemd-tmpfiles-clean.timer", "state": "masked"}},
	}})
	if err != nil {
		panic(err) // it holds nothing but text
	}
	return string(text)
}

// reconciled runs a bundle on the machine, which ends with code, and returns what
// became of each resource.
func reconciled(ctx context.Context, m *bench.Machine, bundle string, code int) map[string]string {
	GinkgoHelper()
	Expect(m.Write(ctx, "/root/bundle.json", bundle)).To(Succeed())
	r := m.Sh(ctx, "mesh-host reconcile /root/bundle.json")
	Expect(r.Code).To(Equal(code), "%s", r)
	status, err := m.Host(ctx)
	Expect(err).NotTo(HaveOccurred())
	return status.Statuses()
}

var _ = Describe("Every kind of resource", Label("apply", "kinds"), func() {
	It("is applied, kept, reloaded, refused and taken away on a real system", func(ctx SpecContext) {
		_, one := raiseOne(ctx, "kinds")
		install(ctx, one)
		r := one.Sh(ctx, prepareSources)
		Expect(r.Err()).To(Succeed())
		named := strings.Fields(r.Stdout)
		Expect(named).To(HaveLen(2))
		bytes, err := strconv.ParseInt(named[1], 10, 64)
		Expect(err).NotTo(HaveOccurred())
		bundle := func(configuration string) string { return kindsBundle(named[0], bytes, configuration) }
		sh := func(script string) string {
			GinkgoHelper()
			return strings.TrimSpace(one.Sh(ctx, script).Stdout)
		}

		By("applying all of it")
		want := map[string]string{"demo/report": "kept"}
		for _, name := range []string{"directory", "once", "offered", "blob", "unit", "conf", "service", "masked"} {
			want["demo/"+name] = "changed"
		}
		Expect(reconciled(ctx, one, bundle("good 1\n"), 0)).To(Equal(want))
		Expect(sh("dpkg-query --show --showformat='${Package} ${Version}\n' demo-blob demo-offered")).To(Equal("demo-blob 1.0\ndemo-offered 2.0"))
		Expect(sh("systemctl is-active demo.service; systemctl is-enabled systemd-tmpfiles-clean.timer")).To(Equal("active\nmasked"))
		pid := sh("systemctl show --property=MainPID demo.service")

		By("finding nothing to do")
		Expect(one.Sh(ctx, "mesh-host plan --check").Err()).To(Succeed())

		By("telling the service to read another configuration")
		Expect(reconciled(ctx, one, bundle("good 2\n"), 0)).To(HaveKeyWithValue("demo/conf", "changed"))
		Expect(sh("cat /run/demo.log")).To(Equal("started\nreloaded"))

		By("refusing one that its command does not like, without a word to the service")
		Expect(reconciled(ctx, one, bundle("bad\n"), 1)).To(HaveKeyWithValue("demo/conf", "failed"))
		Expect(sh("cat /etc/demo/conf /run/demo.log")).To(Equal("good 2\nstarted\nreloaded"))
		Expect(sh("systemctl show --property=MainPID demo.service")).To(Equal(pid))

		By("putting right what was changed by hand, by the service, with a word in the journal")
		reconciled(ctx, one, bundle("good 3\n"), 0)
		Expect(one.Sh(ctx, "echo by hand >/etc/demo/conf; rm /etc/demo/once; systemctl restart mesh-host").Err()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) string {
			return one.Sh(ctx, "journalctl --quiet --output=cat --output-fields=MESH_WHERE MESH_RESOURCE=demo/conf MESH_EVENT=changed _SYSTEMD_UNIT=mesh-host.service").Stdout
		}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(ContainSubstring("/etc/demo/conf"))
		Expect(sh("cat /etc/demo/conf; test -e /etc/demo/once || echo no longer")).To(Equal("good 3\nno longer"))
		var why struct {
			Copies []struct{ Path string }
		}
		Expect(one.JSON(ctx, "mesh-host why --json /etc/demo/conf", &why)).To(Succeed())
		Expect(why.Copies).To(HaveLen(1))
		Expect(sh("cat " + why.Copies[0].Path)).To(Equal("by hand"))

		By("taking all of it away")
		reconciled(ctx, one, `{"format":1,"resources":[]}`, 0)
		Expect(sh("ls -d /etc/demo /etc/systemd/system/demo.service; dpkg-query --show --showformat='${db:Status-Abbrev}\n' demo-blob demo-offered | grep ii; systemctl is-active demo.service")).To(Equal("inactive"))
		Expect(sh("systemctl is-enabled systemd-tmpfiles-clean.timer")).To(Equal("static"))
		Expect(sh("cat /etc/theirs")).To(Equal("theirs"))
	}, SpecTimeout(10*time.Minute))
})
