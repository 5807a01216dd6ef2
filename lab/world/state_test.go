package world_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/lab/fault"
	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// TestStateRefused refuses a state as a whole, and tells one that it took.
func TestStateRefused(t *testing.T) {
	b := newBed(t, "00000029")
	b.strike(fault.Fault{Name: "stays", Kind: fault.Loss, On: on(t, "pub"), Share: 1000})
	before, err := b.client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for says, text := range map[string]string{
		"unknown":         `{"fault": []}`,
		"twice":           `{"faults": [{"name":"a","kind":"dns-failing"},{"name":"a","kind":"dns-failing"}]}`,
		"there is no":     `{"faults": [{"name":"a","kind":"loss","on":["machine:nobody"],"share":"1%"}]}`,
		"JSON value must": `{"faults": [{"name":"a","kind":"loss","on":["machine:pub"],"share":0.5}]}`,
		"not by the":      `{"faults": [{"name":"a","kind":"pause","on":["machine:pub"]}]}`,
		"cannot be a":     `{"faults": [{"name":"A","kind":"dns-failing"}]}`,
		"there is no ki":  `{"faults": [{"name":"a","kind":"lose"}]}`,
		"read state":      `[]`,
	} {
		if err := b.client.SetState(t.Context(), json.RawMessage(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
	after, err := b.client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
}

// TestStateAfterKill begins with nothing impaired, and with every port joined.
func TestStateAfterKill(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "0000002a")
	c := config(t, u)
	p := start(t, c)
	b := &bed{t: t, u: u, client: world.NewClient(c.Control), pub: up(t, u, "pub"), shop: up(t, u, "shop")}
	b.strike(
		fault.Fault{Kind: fault.Delay, On: on(t, "pub"), Delay: fault.Duration(time.Millisecond)},
		fault.Fault{Kind: fault.Partition, On: on(t, "pub"), From: on(t, "shop")},
	)
	kill(t, p, 9)
	start(t, c)
	if !reached(t, b.pub, b.shop.NIC.IPv4.Addr()) {
		t.Error("something is impaired still")
	}
	state, err := b.client.State(t.Context())
	if err != nil || strings.TrimSpace(string(state)) != "{}" {
		t.Errorf("state %s, %v", state, err)
	}
}

// FuzzState never panics, and takes what it gives.
func FuzzState(f *testing.F) {
	u := plan(f, town, "0000002b")
	f.Add(`{}`)
	f.Add(`{"faults":[{"name":"a","kind":"partition","on":["machine:pub"],"from":["world"],"direction":"in"}]}`)
	f.Add(`{"faults":[{"name":"a","kind":"delay","on":["in@home","segment:office"],"delay":"1.5s","jitter":"1ms","reorder":"0.1%"}]}`)
	f.Add(`{"faults":[{"name":"a","kind":"issuer-limited","retry_after":"1d"},{"name":"b","kind":"rate","on":["router:box"],"rate":"2Mbit/s"}]}`)
	f.Add(`{"routers":{"box":{"connections":["-A -t 29 -u SEEN_REPLY -s 192.168.1.10 -d 203.0.113.12 -r 203.0.113.12 -n 203.0.113.10 -p udp --sport 6000 --dport 7000 --reply-port-src 7000 --reply-port-dst 6000"],"mappings":[{"protocol":"udp","inside":"192.168.1.10:6000","outside":"203.0.113.10:6000"}]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := world.ParseState([]byte(text), u)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := world.ParseState(again, u)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
		if diff := cmp.Diff(s, twice, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
