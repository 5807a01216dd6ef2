package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/cmd/internal/cli"
	"mesh/host/apply"
	"mesh/host/store"
)

// plans are answers that show every verb.
func plans() map[string]planned {
	held := &store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 5, Digest: strings.Repeat("cd", 32), Document: []byte("signed")}
	full := apply.Plan{Epoch: 1, Generation: 5, Digest: held.Digest, Steps: []apply.Step{
		{ID: "demo/directory", Kind: "directory", Where: "/etc/demo", Verb: apply.VerbNone},
		{ID: "demo/hosts", Kind: "file", Where: "/etc/demo/hosts", Verb: apply.VerbNote, Why: "it is there already, and is not the host's to remove"},
		{ID: "demo/config", Kind: "file", Where: "/etc/demo.conf", Verb: apply.VerbChange, Why: "its content is another"},
		{ID: "demo/new", Kind: "file", Where: "/etc/new.conf", Verb: apply.VerbMake, Why: "it is not there"},
		{ID: "demo/web", Kind: "service", Where: "nginx.service", Verb: apply.VerbRestart, Why: "it restarts when demo/config changes"},
		{ID: "demo/key", Kind: "file", Where: "/etc/demo/key", Verb: apply.VerbBlocked, Why: "a directory is in the way: move it away, or declare another path"},
		{ID: "demo/theirs", Kind: "file", Where: "/etc/theirs", Verb: apply.VerbReport, Why: "its content is another, which is reported and left so"},
		{ID: "demo/service", Kind: "service", Where: "demo.service", Verb: apply.VerbWait, Why: "it waits for demo/key, which will not work"},
		{ID: "demo/old", Kind: "file", Where: "/etc/old.conf", Verb: apply.VerbRemove, Why: "it is not declared any more"},
		{ID: "demo/gone", Kind: "file", Where: "/etc/gone.conf", Verb: apply.VerbForget, Why: "it is gone already"},
		{ID: "demo/edited", Kind: "file", Where: "/etc/edited.conf", Verb: apply.VerbLeave, Why: "it was changed by hand"},
		{ID: "demo/lost", Kind: "package", Where: "tree", Verb: apply.VerbRefuse, Why: "the record of it is older than a loss of the store"},
	}}
	bundled := &store.Accepted{Source: store.SourceBundle, Digest: strings.Repeat("ab", 32)}
	same := apply.Plan{Digest: bundled.Digest, Steps: full.Steps[:1]}
	return map[string]planned{
		"nothing": newPlanned(nil, apply.Plan{}),
		"quiet":   newPlanned(bundled, same),
		"full":    newPlanned(held, full),
	}
}

func TestGoldenPlan(t *testing.T) {
	for name, p := range plans() {
		var text, doc bytes.Buffer
		if err := writePlan(&text, p); err != nil {
			t.Fatal(err)
		}
		golden(t, "plan-"+name+".txt", text.String())
		if err := cli.JSON(&doc, p); err != nil {
			t.Fatal(err)
		}
		golden(t, "plan-"+name+".json", doc.String())
		var again planned
		if err := json.Unmarshal(doc.Bytes(), &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again, cmpopts.IgnoreUnexported(apply.Step{})); diff != "" {
			t.Errorf("%s does not read back (-want +got):\n%s", name, diff)
		}
	}
}
