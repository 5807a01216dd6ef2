package systemtest_test

import (
	"testing"

	"mesh/host/system/systemtest"
)

func TestConformanceOfTheFake(t *testing.T) {
	systemtest.Conformance(t, func(t *testing.T) systemtest.Ground {
		d := systemtest.NewDisk()
		return systemtest.Ground{
			Disk: d, Base: "/srv",
			Place: func(_ *testing.T, p string, thing systemtest.Thing) { d.Put(p, thing) },
		}
	})
}
