package libvirt_test

import (
	"testing"

	"mesh/lab/machine/machinetest"
)

func TestConformance(t *testing.T) { machinetest.RunConformance(t, real) }
