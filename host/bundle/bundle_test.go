package bundle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
)

type passer struct {
	got  []store.Accepted
	fail error
}

func (p *passer) Pass(_ context.Context, accept *store.Accepted) (*store.Accepted, declaration.Outcome, error) {
	p.got = append(p.got, *accept)
	return accept, declaration.Outcome{Digest: accept.Digest}, p.fail
}

var now = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

func config(p *passer) bundle.Config {
	return bundle.Config{Hand: p, Now: func() time.Time { return now }}
}

// reconcile reads a bundle and has it applied.
func reconcile(t *testing.T, cfg bundle.Config, text string) (declaration.Outcome, error) {
	t.Helper()
	accepted, err := bundle.Accept([]byte(text), now)
	if err != nil {
		return declaration.Outcome{}, err
	}
	return bundle.Reconcile(t.Context(), cfg, accepted)
}

const good = `{"format":1,"resources":[{"id":"a","package":{"name":"nginx"}}]}`

func TestReconcile(t *testing.T) {
	p := &passer{}
	outcome, err := reconcile(t, config(p), good)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := declaration.ParseBundle([]byte(good))
	digest := declaration.Digest([]byte(good))
	want := []store.Accepted{{Source: store.SourceBundle, Digest: digest, Time: now, Document: []byte(good), Resources: b.Resources}}
	if diff := cmp.Diff(want, p.got); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
	if outcome.Digest != digest {
		t.Errorf("outcome: %+v", outcome)
	}
}

// The digest is that of the file, as sha256sum(1) says it.
func TestDigestIsOfTheFile(t *testing.T) {
	a, err := bundle.Accept([]byte(`{"format":1,"resources":[]}`+"\n"), now)
	if want := "86be824c67183a9d71bfed9ee8315c18fc090cbd37923f916d9a644b49e10455"; err != nil || a.Digest != want {
		t.Errorf("%s, %v", a.Digest, err)
	}
}

// Bad bundles are refused as a whole, with exit code 2, and nothing is accepted
// (issue "Bad input").
func TestReconcileRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "the document ends in the middle"},
		{"unknown key", `{"format":1,"resources":[{"id":"a","fil":{"path":"/x","content":""}}]}`, `line 1, column 36: resources[0].fil: unknown member "fil"; did you mean "file"?`},
		{"duplicate key", `{"format":1,"resources":[],"resources":[{"id":"a"}]}`, "resources: the member is there twice"},
		{"null", `{"format":1,"resources":[null]}`, "resources[0]: null is not a value here"},
		{"trailing bytes", good + "\n{}", "there is something after the end of the document"},
		{"newer", `{"format":4,"resources":[]}`, "the host is too old"},
		{"nonsense", `{"format":1,"resources":[{"id":"a","file":{"path":"/proc/x","content":""}}]}`, "is in /proc, where nothing can be owned"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &passer{}
			_, err := reconcile(t, config(p), tc.text)
			var coder interface{ ExitCode() int }
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.As(err, &coder) || coder.ExitCode() != 2 {
				t.Errorf("\n got: %v\nwant: …%s… with exit code 2", err, tc.want)
			}
			if len(p.got) != 0 {
				t.Errorf("accepted: %+v", p.got)
			}
		})
	}
}

func TestReconcileWhenEnrolled(t *testing.T) {
	p := &passer{}
	cfg := config(p)
	cfg.Mesh, cfg.Node = "home", "one"
	_, err := reconcile(t, cfg, good)
	var enrolled *bundle.EnrolledError
	if !errors.As(err, &enrolled) || len(p.got) != 0 || !strings.Contains(err.Error(), "this machine is node one of mesh home and follows its plane") {
		t.Errorf("%v, accepted %+v", err, p.got)
	}
}

func TestReconcilePassesErrorsOn(t *testing.T) {
	p := &passer{fail: store.ErrFull}
	outcome, err := reconcile(t, config(p), good)
	if !errors.Is(err, store.ErrFull) || outcome.Digest == "" {
		t.Errorf("%+v, %v", outcome, err)
	}
}
