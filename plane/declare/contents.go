package declare

import (
	"mesh/host/declaration"
	"mesh/plane/module"
	"mesh/plane/registry"
)

// inline is the most bytes of a file's content that are in a declaration. A longer
// one is named by its digest: the plane keeps it once for all nodes, and a host
// fetches it once, whatever else is declared anew.
const inline = 64 << 10

// apart takes the contents that are too long out of the resources of modules, and
// lists them with those that are named already.
func apart(catalogue module.Catalogue, modules []string, resources []declaration.Resource) ([]declaration.Resource, []registry.Content, error) {
	out := make([]declaration.Resource, len(resources))
	data := map[string]string{} // by digest
	for _, name := range modules {
		m, err := catalogue.Named(name)
		if err != nil {
			return nil, nil, err
		}
		for _, content := range catalogue.Contents(m) {
			data[declaration.Digest([]byte(content))] = content
		}
	}
	for i, r := range resources {
		if r.File != nil && len(r.File.Content) > inline {
			f := *r.File
			f.Blob = &declaration.Blob{Digest: declaration.Digest([]byte(f.Content)), Bytes: int64(len(f.Content))}
			data[f.Blob.Digest] = f.Content
			f.Content, r.File = "", &f
		}
		out[i] = r
	}
	var contents []registry.Content
	for _, b := range declaration.Blobs(out) {
		contents = append(contents, registry.Content{Blob: b, Data: data[b.Digest]})
	}
	return out, contents, nil
}
