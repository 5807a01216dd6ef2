package systemtest_test

import (
	"strings"
	"testing"

	"mesh/host/system"
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
		systemtest.UnitRude:      {},
		systemtest.UnitStatic:    {Enabled: "static"},
		systemtest.UnitSlow:      {Slow: true},
	}
	systemtest.ServiceConformance(t, m, func(_ *testing.T, b systemtest.UnitBehaviour) string {
		unit := behaviours[b]
		unit.Name = string(b) + ".service"
		m.AddUnit(unit)
		return unit.Name
	})
}

func TestContainerConformanceOfTheFake(t *testing.T) {
	m := systemtest.New()
	image := "registry.test/shop@sha256:" + strings.Repeat("1", 64)
	m.OfferImage(image)
	systemtest.ContainerConformance(t, m, image, func(_ *testing.T, name, unit, made string) {
		m.AddContainer(name, system.Container{Unit: unit, Made: made, Image: "sha256:" + strings.Repeat("1", 64)})
	})
}

func TestPackageConformanceOfTheFake(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("mesh-conformance", systemtest.Offer{Versions: []string{"1.0", "2.0"}})
	m.Disk.Put("/srv/one.deb", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "1.0"})
	systemtest.PackageConformance(t, m, systemtest.OfferedPackage{Name: "mesh-conformance", Release: "conformance", File: "/srv/one.deb"})
}
