package resource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

var (
	keyOfImage = store.Key{Kind: resource.KindImage, Where: imageOfShop}
	onItsWay   = store.State{Type: "image", Status: "fetching"}
	notSeen    = store.State{Type: "image", Status: "unseen"}
)

func TestImageLook(t *testing.T) {
	for _, tc := range []struct {
		name    string
		machine func(*systemtest.Machine)
		want    resource.Found
	}{
		{"not there", func(*systemtest.Machine) {}, resource.Found{}},
		{"there", func(m *systemtest.Machine) { m.AddImage(imageOfShop) }, resource.Found{State: resource.Fetched()}},
		{"used", func(m *systemtest.Machine) {
			m.AddImage(imageOfShop)
			_, digest, _ := strings.Cut(imageOfShop, "@")
			m.AddContainer("theirs", system.Container{Image: digest})
		}, resource.Found{State: resource.Fetched(), Users: []string{"theirs"}}},
		{"its fetch goes on", func(m *systemtest.Machine) {
			m.AddUnit(systemtest.Unit{Name: system.FetchUnit(imageOfShop), Active: "activating"})
		}, resource.Found{State: onItsWay}},
		{"its fetch ended", func(m *systemtest.Machine) {
			m.AddUnit(systemtest.Unit{Name: system.FetchUnit(imageOfShop), Active: "failed"})
		}, resource.Found{}},
		{"no podman", func(m *systemtest.Machine) { m.LacksPodman("none") }, resource.Found{State: notSeen, Lacks: "this machine cannot run containers: none"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := systemtest.New()
			tc.machine(m)
			if diff := cmp.Diff(tc.want, resource.Look(t.Context(), m, []store.Key{keyOfImage})[keyOfImage]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, call := range []string{"read images", "read units"} {
		m := systemtest.New()
		m.Hook(func(op systemtest.Op) error {
			if op.Name == call {
				return errors.New("no")
			}
			return nil
		})
		if found := resource.Look(t.Context(), m, []store.Key{keyOfImage})[keyOfImage]; found.Err == nil {
			t.Errorf("%s failed, and there is %+v", call, found)
		}
	}
}

func TestImageFateAndResolve(t *testing.T) {
	for _, tc := range []struct {
		name    string
		found   store.State
		fate    resource.Fate
		fetched resource.Resolution // of an intent to fetch it
		removed resource.Resolution // of one to remove it
	}{
		{"not there", store.State{}, resource.Gone, resource.Undone, resource.Done},
		{"there", resource.Fetched(), resource.Remove, resource.Done, resource.Undone},
		{"on its way", onItsWay, resource.Remove, resource.Partly, resource.Undone},
		{"not seen", notSeen, resource.Leave, resource.Partly, resource.Undone},
	} {
		fate, why := resource.FateOf(store.Owned{Key: keyOfImage, Made: resource.Fetched()}, tc.found)
		if fate != tc.fate || (why != "") != (fate == resource.Leave) {
			t.Errorf("%s: %v %q", tc.name, fate, why)
		}
		if got := resource.Resolve(store.Intent{Key: keyOfImage, Act: store.ActApply, Target: resource.Fetched()}, tc.found); got != tc.fetched {
			t.Errorf("%s: a fetch is resolved as %v", tc.name, got)
		}
		if got := resource.Resolve(store.Intent{Key: keyOfImage, Act: store.ActRemove, Before: resource.Fetched()}, tc.found); got != tc.removed {
			t.Errorf("%s: a removal is resolved as %v", tc.name, got)
		}
		if differs := resource.Differs(resource.KindImage, resource.Fetched(), tc.found); (differs == "") != (tc.found == resource.Fetched()) {
			t.Errorf("%s: %q", tc.name, differs)
		}
	}
}
