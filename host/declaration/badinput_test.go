package declaration_test

import (
	"strings"
	"testing"

	"mesh/host/declaration"
)

// TestBadInputDocuments is the list of what people and machines get wrong in a
// document, one case each. Each is refused as a whole, with what is wrong and
// where: the line, and the resource by its place in the list.
func TestBadInputDocuments(t *testing.T) {
	file := func(path string) string { return `{"id":"a","file":{"path":"` + path + `","content":""}}` }
	for _, tc := range []struct{ name, resources, want string }{
		{"a key in another case", `{"id":"a","File":{"path":"/x","content":""}}`, `line 2, column 11: resources[0].File: unknown member "File"; did you mean "file"?`},
		{"a key twice", `{"id":"a","file":{"path":"/x","path":"/y","content":""}}`, `resources[0].file.path: the member is there twice`},
		{"null", `{"id":"a","file":{"path":"/x","content":null}}`, `resources[0].file.content: null is not a value here`},
		{"bytes behind the end", file("/x") + `]}` + "\n" + `{"format":1,"resources":[`, `there is something after the end of the document`},
		{"two resources for one path", file("/x") + `,{"id":"b","directory":{"path":"/x"}}`, `resources[1].directory.path: path /x is declared by "a" already`},
		{"two packages of one name", `{"id":"a","package":{"name":"nginx"}},{"id":"b","package":{"name":"nginx"}}`, `resources[1].package.name: package nginx is declared by "a" already`},
		{"a cycle in restart_on", `{"id":"a","service":{"unit":"a.service","restart_on":["b"]}},{"id":"b","service":{"unit":"b.service","restart_on":["a"]}}`,
			`resources[0].service.restart_on[0]: "b" is not the id of a resource declared before this one`},
		{"a cycle in reload_on", `{"id":"a","service":{"unit":"a.service","reload_on":["a"]}}`, `resources[0].service.reload_on[0]: a service cannot be restarted because of itself`},
		{"a path upwards", file("/etc/../root/x"), `resources[0].file.path: "/etc/../root/x" is not clean; wanted "/root/x"`},
		{"a relative path", file("etc/x"), `resources[0].file.path: "etc/x" is not absolute`},
		{"the root", `{"id":"a","directory":{"path":"/"}}`, `resources[0].directory.path: the root directory cannot be owned`},
		{"a path of the kernel's", file("/proc/x"), `resources[0].file.path: "/proc/x" is in /proc, where nothing can be owned`},
		{"a digest that is none", `{"id":"a","file":{"path":"/x","content":"","blob":{"digest":"sha256:0","bytes":1}}}`, `resources[0].file.blob.digest: "sha256:0" is not allowed`},
		{"a number for a text", `{"id":"a","file":{"path":7,"content":""}}`, `resources[0].file.path`},
		{"a list for a resource", `[]`, `resources[0]`},
		{"cut short", `{"id":"a","file":{"path":"/x"`, `line 2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := declaration.ParseBundle([]byte("{\"format\":2,\"resources\":[\n" + tc.resources + "]}"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tc.want)
			}
		})
	}
}
