package machinetest

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"testing"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
)

// abuseTests hold to machine.Abuse.
var abuseTests = []test{
	{"what is absent cannot be abused", testAbuseAbsent},
	{"a reset boots anew", testReset},
	{"a cable is pulled and put back", testLink},
	{"a disk is slowed and let go", testThrottle},
	{"a disk is taken away, or not let go, and given back", testDetach},
	{"only what has a display shows something", testScreenshot},
	{"a machine's load is known", testLoad},
}

func testAbuseAbsent(t *testing.T, k Kit) {
	h, name := k.Hypervisor, "mesh-test-"+k.Run+"-nobody"
	_, shot := h.Screenshot(t.Context(), name)
	_, load := h.Load(t.Context(), name)
	for what, err := range map[string]error{
		"reset":      h.Reset(t.Context(), name),
		"link":       h.Link(t.Context(), name, "52:54:00:00:00:01", false),
		"throttle":   h.Throttle(t.Context(), name, machine.Throttle{BytesPerSecond: 1}),
		"detach":     h.Detach(t.Context(), name),
		"attach":     h.Attach(t.Context(), name),
		"screenshot": shot,
		"load":       load,
	} {
		if !errors.Is(err, machine.ErrAbsent) {
			t.Errorf("%s: %v, want ErrAbsent", what, err)
		}
	}
}

func testReset(t *testing.T, k Kit) {
	s := k.running(t, "reset")
	before := k.countsBeyond(t, s, 20)
	k.pause(t, s) // so that what it says next is said after the reset
	if err := k.Hypervisor.Reset(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	k.resume(t, s)
	limit, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for k.Count(t, s) >= before {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("it goes on at %d, it was reset at %d", k.Count(t, s), before)
		}
	}
	k.wantState(t, s.Name, machine.Running)
}

func testLink(t *testing.T, k Kit) {
	h := k.Hypervisor
	s := k.Spec(t, "link", bootsector.Count())
	s.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: k.tap("link", 0)}}
	if err := h.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{false, false, true, true} {
		if err := h.Link(t.Context(), s.Name, s.NICs[0].MAC, up); err != nil {
			t.Errorf("up %t: %v", up, err)
		}
	}
	if err := h.Link(t.Context(), s.Name, "52:54:00:00:00:02", false); err == nil || errors.Is(err, machine.ErrAbsent) {
		t.Errorf("of a NIC that it has not: %v, want an error that is not ErrAbsent", err)
	}
}

func testThrottle(t *testing.T, k Kit) {
	h := k.Hypervisor
	s := k.running(t, "slow")
	for _, limit := range []machine.Throttle{
		{BytesPerSecond: 1 << 20, OperationsPerSecond: 10}, {BytesPerSecond: 1 << 20}, {OperationsPerSecond: 10}, {}, {},
	} {
		if err := h.Throttle(t.Context(), s.Name, limit); err != nil {
			t.Errorf("%+v: %v", limit, err)
		}
	}
	if err := h.Throttle(t.Context(), s.Name, machine.Throttle{BytesPerSecond: -1}); err == nil {
		t.Error("a bound below zero was taken")
	}
}

// The guest of a boot sector knows nothing of disks that go, so that a real
// hypervisor waits for it in vain.
func testDetach(t *testing.T, k Kit) {
	h := k.Hypervisor
	s := k.running(t, "detach")
	if err := h.Attach(t.Context(), s.Name); err != nil {
		t.Errorf("attach what is attached: %v", err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := h.Detach(ctx, s.Name)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("detach: %v, want success or the end of the context", err)
		}
	}
	for range 2 {
		if err := h.Attach(t.Context(), s.Name); err != nil {
			t.Errorf("attach: %v", err)
		}
	}
	if disk, err := h.Disk(t.Context(), s.Name); err != nil || disk != s.Disk {
		t.Errorf("its disk is %q, %v; want %q", disk, err, s.Disk)
	}
	k.countsBeyond(t, s, k.Count(t, s))
}

func testScreenshot(t *testing.T, k Kit) {
	h := k.Hypervisor
	blind := k.create(t, "blind", bootsector.Halt())
	if shot, err := h.Screenshot(t.Context(), blind.Name); err == nil || errors.Is(err, machine.ErrAbsent) {
		t.Errorf("of a machine without a display: %d bytes, %v; want an error that is not ErrAbsent", len(shot), err)
	}
	s := k.Spec(t, "seen", bootsector.Count())
	s.Display = true
	if err := h.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	k.resume(t, s)
	k.countsBeyond(t, s, 0)
	shot, err := h.Screenshot(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if picture, err := png.Decode(bytes.NewReader(shot)); err != nil || picture.Bounds().Empty() {
		t.Errorf("no picture: %v", err)
	}
}

func testLoad(t *testing.T, k Kit) {
	s := k.running(t, "load")
	one, err := k.Hypervisor.Load(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	k.countsBeyond(t, s, k.Count(t, s)+5)
	two, err := k.Hypervisor.Load(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if two.ResidentBytes == 0 || two.CPUSeconds < one.CPUSeconds || two.ReadBytes < one.ReadBytes || two.WrittenBytes != 0 {
		t.Errorf("first %+v, then %+v", one, two)
	}
}
