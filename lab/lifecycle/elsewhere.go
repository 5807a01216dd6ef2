package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// homeName is, in a run's runtime directory, a link to its scenario's directory:
// all labs of a machine share the one, and have stores of their own.
const homeName = "scenario"

// announce lets labs with other stores know of a scenario that has a record.
func (l *Lab) announce(p Plan) error {
	err := os.MkdirAll(p.Runtime, 0o755)
	if err == nil {
		err = os.Symlink(p.Directory, filepath.Join(p.Runtime, homeName))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("tell other labs of scenario %s: %w", p.Name, err)
	}
	return nil
}

// elsewhere lists the records of scenarios that other stores of this lab machine
// hold. One that cannot be read is none.
func (l *Lab) elsewhere() (all []Record, err error) {
	runs, err := os.ReadDir(l.cfg.Runtime)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, run := range runs {
		runtime := filepath.Join(l.cfg.Runtime, run.Name())
		home, err := os.Readlink(filepath.Join(runtime, homeName))
		if err != nil || filepath.Dir(home) == filepath.Dir(l.Directory(run.Name())) {
			continue
		}
		if r, err := readRecord(home); err == nil && r.Plan.Runtime == runtime {
			all = append(all, r)
		}
	}
	return all, err
}
