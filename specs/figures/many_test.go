package figures_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const manyUnchanged = "10,000 unchanged, content by digest"

// many times mesh-host alone at 10,000 files. Their content would not fit into one
// document, so it is named by its digest.
func (c *comparison) many(ctx context.Context) {
	g := ground{work: filepath.Join(c.dir, "many", "work"), tree: filepath.Join(c.dir, "many", "at", "tree"), files: many}
	line := c.sheet.Line(manyUnchanged, mesh)
	line.Files = many
	err := digested(g)
	command := append(append([]string{*hostBin}, hostFlags(g)...), "reconcile", filepath.Join(g.work, "many.json"))
	if err == nil {
		c.t.Logf("%d files", many)
		err = run(ctx, nil, command...)
	}
	for n := 0; n < *runs && err == nil; n++ {
		m, failed := measure(ctx, g.work, nil, command...)
		if err = failed; err == nil {
			line.Runs = append(line.Runs, m)
			c.t.Logf("  unchanged: %.3f s", m.Time.Seconds())
		}
	}
	if whole := g.check(first, 0, many); err == nil && whole != many {
		err = fmt.Errorf("%d of %d files are as declared", whole, many)
	}
	if err != nil {
		line.Failed = append(line.Failed, err.Error())
		c.t.Error(err)
	}
}

// digested writes a bundle whose content lies beside it.
func digested(g ground) error {
	contents := filepath.Join(g.work, "content")
	if err := os.MkdirAll(contents, 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(g.tree), 0o755); err != nil {
		return err
	}
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for i, dir := range g.directories() {
		add(`{"id":"figures/d%d","directory":{"path":%q}}`, i, dir)
	}
	for i := range g.files {
		content := g.content(first, i)
		sum := sha256.Sum256([]byte(content))
		digest := hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(contents, digest), []byte(content), 0o600); err != nil {
			return err
		}
		add(`{"id":"figures/f%d","file":{"path":%q,"mode":"%04o","content":"","blob":{"digest":%q,"bytes":%d}}}`, i, g.path(i), fileMode, digest, fileSize)
	}
	text := `{"format":2,"resources":[` + strings.Join(all, ",\n") + "]}"
	if !json.Valid([]byte(text)) {
		return fmt.Errorf("the bundle of %d files is not JSON", g.files)
	}
	return g.write("many.json", text)
}
