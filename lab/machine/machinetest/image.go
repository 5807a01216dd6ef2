package machinetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"mesh/lab/machine"
)

// imageFormat begins every memory image of fakes.
const imageFormat = "mesh-test-memory-1"

// Image is the memory of a machine that no process stands behind, as a file.
type Image struct {
	Format   string            `json:"format"`
	Platform machine.Platform  `json:"platform"`
	Machine  machine.Spec      `json:"machine"`          // that it was taken of
	Held     map[string]string `json:"held"`             // what the guest had in memory
	Pulled   []string          `json:"pulled,omitempty"` // MACs of NICs without a cable
}

// FakePlatform is what fakes say their machines are made of.
func FakePlatform(a machine.Accelerator) machine.Platform {
	return machine.Platform{Emulator: "fake 1.0.0", MachineType: "fake-1.0", CPU: "fake", Accelerator: a}
}

// Write makes a new file of i; fs.ErrExist where there is one.
func (i Image) Write(path string) error {
	i.Format = imageFormat
	data, err := json.Marshal(i)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// OpenImage reads what Write wrote. ErrForeign where it is not that, whole.
func OpenImage(path string) (Image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Image{}, err
	}
	var i Image
	if err := json.Unmarshal(data, &i); err != nil {
		return Image{}, fmt.Errorf("%w: %s is cut short or no memory image: %v", machine.ErrForeign, path, err)
	}
	if i.Format != imageFormat {
		return Image{}, fmt.Errorf("%w: %s is of format %q", machine.ErrForeign, path, i.Format)
	}
	return i, nil
}

// Fits is nil where i can be restored as s on p, else ErrForeign.
func (i Image) Fits(p machine.Platform, s machine.Spec) error {
	if i.Platform != p {
		return fmt.Errorf("%w: it was taken on %+v, here is %+v", machine.ErrForeign, i.Platform, p)
	}
	return s.Fits(i.Machine)
}
