package link_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/host/link"
)

var _ connect.Codec = link.Codec{}

// The bytes on the wire, so that a member is never renamed by accident.
func TestWireForm(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 500, time.UTC)
	inv := inventory.Inventory{MachineID: "m", Hostname: "h", CPUs: 1, MemoryBytes: 2, Interfaces: []inventory.Interface{
		{Name: "ens3", MAC: "52:54:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}}
	profile := inventory.Profile{HostVersion: "1", Formats: []int{1}, Kinds: []string{"file"}, OS: "debian", OSVersion: "13", Architecture: "amd64", Kernel: "6", Systemd: true}
	for _, tc := range []struct {
		message, empty any
		want           string
	}{
		{&link.EnrolRequest{Protocol: 1, TokenID: "01", Proof: []byte{0xff}, Profile: profile, Inventory: inv}, &link.EnrolRequest{},
			`{"protocol":1,"token_id":"01","proof":"/w==","profile":{"host_version":"1","formats":[1],"kinds":["file"],"os":"debian","os_version":"13","architecture":"amd64","kernel":"6","systemd":true},"inventory":{"machine_id":"m","hostname":"h","cpus":1,"memory_bytes":2,"interfaces":[{"name":"ens3","mac":"52:54:00:00:00:01","addresses":["192.0.2.1/24"]}]}}`},
		{&link.EnrolResponse{Protocol: 1, Mesh: "m", Node: "n", Addresses: []string{"10.0.0.1"}, DeclarationKey: "declkey:0", Epoch: 1, Time: at}, &link.EnrolResponse{},
			`{"protocol":1,"mesh":"m","node":"n","addresses":["10.0.0.1"],"declaration_key":"declkey:0","epoch":1,"time":"2026-12-01T10:00:00.0000005Z"}`},
		{&link.WatchRequest{Protocol: 1, Epoch: 1, Generation: 1<<64 - 1, Digest: "d", Profile: inventory.Profile{}}, &link.WatchRequest{},
			`{"protocol":1,"epoch":1,"generation":18446744073709551615,"digest":"d","profile":{"host_version":"","formats":[],"kinds":[],"os":"","os_version":"","architecture":"","kernel":"","systemd":false}}`},
		{&link.Offer{Epoch: 1, Generation: 2, Digest: "d", Time: at}, &link.Offer{}, `{"epoch":1,"generation":2,"digest":"d","time":"2026-12-01T10:00:00.0000005Z"}`},
		{&link.FetchRequest{Digest: "d"}, &link.FetchRequest{}, `{"digest":"d"}`},
		{&link.FetchResponse{Signed: []byte("ab")}, &link.FetchResponse{}, `{"signed":"YWI="}`},
		{&link.ReportRequest{Outcome: declaration.Outcome{Epoch: 1, Generation: 2, Digest: "d", Results: []declaration.Result{{ID: "a", Kind: declaration.KindFile, Where: "/x", Status: declaration.StatusFailed, Reason: "no space"}}}, Inventory: inv}, &link.ReportRequest{},
			`{"outcome":{"epoch":1,"generation":2,"digest":"d","results":[{"id":"a","kind":"file","where":"/x","status":"failed","reason":"no space"}]},"inventory":{"machine_id":"m","hostname":"h","cpus":1,"memory_bytes":2,"interfaces":[{"name":"ens3","mac":"52:54:00:00:00:01","addresses":["192.0.2.1/24"]}]}}`},
		{&link.ReportResponse{Time: at}, &link.ReportResponse{}, `{"time":"2026-12-01T10:00:00.0000005Z"}`},
	} {
		b, err := link.Codec{}.Marshal(tc.message)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, string(b)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", tc.message, diff)
		}
		if err := (link.Codec{}).Unmarshal(b, tc.empty); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tc.message, tc.empty, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%T does not read back (-want +got):\n%s", tc.message, diff)
		}
	}
}

// A newer end may say more, but nobody may say a thing twice or without end.
func TestUnmarshal(t *testing.T) {
	var offer link.Offer
	if err := (link.Codec{}).Unmarshal([]byte(`{"epoch":3,"weather":{"x":null}}`), &offer); err != nil || offer.Epoch != 3 {
		t.Errorf("an unknown member: %+v, %v", offer, err)
	}
	for _, tc := range []struct{ text, want string }{
		{`{"epoch":1,"epoch":2}`, "duplicate"},
		{`{"epoch":1}{}`, "after top-level value"},
		{``, "EOF"},
		{"{\"digest\":\"\xff\"}", "UTF-8"},
		{`{"epoch":-1}`, "epoch"},
		{strings.Repeat(" ", link.MaxMessageBytes+1), "at most"},
	} {
		if err := (link.Codec{}).Unmarshal([]byte(tc.text), &offer); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.40q: %v, want …%s…", tc.text, err, tc.want)
		}
	}
}

// The largest declaration fits into a message.
func TestMaxMessageBytesHoldsADeclaration(t *testing.T) {
	b, err := link.Codec{}.Marshal(&link.FetchResponse{Signed: make([]byte, declaration.MaxBytes+4096)})
	if err != nil || len(b) > link.MaxMessageBytes {
		t.Errorf("%d bytes, at most %d; %v", len(b), link.MaxMessageBytes, err)
	}
}

// The numbers are Connect's own.
func TestReasonCodes(t *testing.T) {
	for reason, want := range map[link.Reason]connect.Code{
		link.ReasonTokenUnknown: connect.CodePermissionDenied,
		link.ReasonTokenExpired: connect.CodePermissionDenied,
		link.ReasonTokenSpent:   connect.CodePermissionDenied,
		link.ReasonNameTaken:    connect.CodeAlreadyExists,
		link.ReasonKeyKnown:     connect.CodeAlreadyExists,
		link.ReasonOverlap:      connect.CodeFailedPrecondition,
		link.ReasonRangeFull:    connect.CodeResourceExhausted,
		link.ReasonTooOld:       connect.CodeFailedPrecondition,
		link.ReasonModule:       connect.CodeFailedPrecondition,
		link.ReasonMalformed:    connect.CodeInvalidArgument,
		link.ReasonNotANode:     connect.CodeUnauthenticated,
		link.ReasonNotFound:     connect.CodeNotFound,
		link.ReasonBusy:         connect.CodeResourceExhausted,
		link.ReasonUnavailable:  connect.CodeUnavailable,
		"something new":         connect.CodeUnknown,
	} {
		if got := connect.Code(reason.Code()); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"token_id":"01","proof":"/w==","inventory":{"interfaces":[{"addresses":["192.0.2.1/24"]}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second link.EnrolRequest
		if (link.Codec{}).Unmarshal(b, &first) != nil {
			return
		}
		text, err := link.Codec{}.Marshal(&first)
		if err != nil {
			t.Fatal(err)
		}
		if err := (link.Codec{}).Unmarshal(text, &second); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	})
}
