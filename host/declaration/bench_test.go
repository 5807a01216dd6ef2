package declaration_test

import (
	"fmt"
	"strings"
	"testing"

	"mesh/host/declaration"
)

func BenchmarkParse(b *testing.B) {
	for _, size := range []struct{ resources, bytes int }{{1000, 4096}, {10_000, 100}} {
		var list []declaration.Resource
		for i := range size.resources {
			list = append(list, declaration.Resource{ID: fmt.Sprintf("demo/f%d", i), File: &declaration.File{
				Path: fmt.Sprintf("/etc/demo/f%d", i), Content: strings.Repeat("some text\n", size.bytes/10)}})
		}
		canonical, err := valid(list...).Canonical()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d resources of %d bytes", size.resources, size.bytes), func(b *testing.B) {
			b.SetBytes(int64(len(canonical)))
			for b.Loop() {
				if _, err := declaration.Parse(canonical); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
