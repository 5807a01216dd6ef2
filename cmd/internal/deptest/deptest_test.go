package deptest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/cmd/internal/deptest"
)

func TestBrokenNamesPackageImportAndReason(t *testing.T) {
	packages := []deptest.Package{
		{ImportPath: "mesh/a", Imports: []string{"os", "mesh/b"}, Deps: []string{"os", "mesh/b", "mesh/c/d"}},
		{ImportPath: "mesh/a/inner", Imports: []string{"mesh/c"}},
		{ImportPath: "mesh/ab", Imports: []string{"mesh/c"}},
	}
	tests := map[string]struct {
		rule deptest.Rule
		want []string
	}{
		"direct": {
			deptest.Rule{Of: []string{"mesh/a/..."}, Never: []string{"mesh/c/...", "os"}, Because: "r"},
			[]string{"mesh/a must not reach os: r", "mesh/a/inner must not reach mesh/c: r"},
		},
		"through": {
			deptest.Rule{Of: []string{"mesh/a"}, Never: []string{"mesh/c/..."}, Through: true, Because: "r"},
			[]string{"mesh/a must not reach mesh/c/d: r"},
		},
		"but and except": {
			deptest.Rule{Of: []string{"mesh/..."}, Except: []string{"mesh/ab", "mesh/a/inner"}, Never: []string{"mesh/..."}, But: []string{"mesh/b"}},
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.rule.Broken(packages)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
