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

func TestServiceConformanceOfTheFake(t *testing.T) {
	m := systemtest.New()
	behaviours := map[systemtest.UnitBehaviour]systemtest.Unit{
		systemtest.UnitGood:      {},
		systemtest.UnitFails:     {Fails: "no such program"},
		systemtest.UnitCondition: {Skipped: true},
		systemtest.UnitStatic:    {Enabled: "static"},
	}
	systemtest.ServiceConformance(t, m, func(_ *testing.T, b systemtest.UnitBehaviour) string {
		unit := behaviours[b]
		unit.Name = string(b) + ".service"
		m.AddUnit(unit)
		return unit.Name
	})
}
