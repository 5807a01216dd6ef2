package scenario_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/scenario"
)

var update = flag.Bool("update", false, "write the goldens anew")

// TestRefused reads each document of testdata/refused and compares every
// problem with the golden beside it.
func TestRefused(t *testing.T) {
	documents, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(documents) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	for _, document := range documents {
		name := filepath.Base(document)
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Parse(name, strings.NewReader(string(content)))
			var problems scenario.Problems
			if !errors.As(err, &problems) || s != nil {
				t.Fatalf("Parse returned %v, %v; want problems alone", s, err)
			}
			if problems.ExitCode() != 2 {
				t.Errorf("exit code %d, want 2", problems.ExitCode())
			}
			golden(t, strings.TrimSuffix(document, ".yaml")+".txt", problems.Error()+"\n")
		})
	}
}

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update if it should:\n%s", file, diff)
	}
}
