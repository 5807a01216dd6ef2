package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"mesh/lab/guest"
	"mesh/lab/machine"
)

// clockwork is a hypervisor with one machine, an hour behind, that does what it
// is told and keeps the words.
type clockwork struct{ words, out string }

func (c *clockwork) Agent(_ context.Context, _, command string) (string, error) {
	var m struct {
		Execute   string
		Arguments struct {
			Input []byte `json:"input-data"`
		}
	}
	if err := json.Unmarshal([]byte(command), &m); err != nil {
		return "", err
	}
	switch m.Execute {
	case "guest-get-time":
		return fmt.Sprintf(`{"return":%d}`, time.Now().Add(-time.Hour).UnixNano()), nil
	case "guest-exec":
		c.words = string(m.Arguments.Input)
		return `{"return":{"pid":7}}`, nil
	case "guest-exec-status":
		out, err := json.Marshal([]byte(c.out))
		return fmt.Sprintf(`{"return":{"exited":true,"exitcode":0,"out-data":%s}}`, out), err
	}
	return "", fmt.Errorf("unknown command %s", m.Execute)
}

func (*clockwork) Wait(ctx context.Context, _ string) (machine.Death, error) {
	<-ctx.Done()
	return machine.Death{}, ctx.Err()
}

// The clock is set before anything but random numbers, or left alone; and a
// machine that is to be silent is not asked what it is.
func TestCaseL5ClockFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		id    guest.Identity
		clock bool
	}{
		"set":  {guest.Identity{Entropy: []byte("random"), Hostname: "one", Silent: true}, true},
		"kept": {guest.Identity{Entropy: []byte("random"), Hostname: "one", Silent: true, KeepClock: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clockwork{}
			facts, err := guest.New(c).Settle(t.Context(), "m", tt.id)
			if err != nil {
				t.Fatal(err)
			}
			at := strings.Index(c.words, "clock ")
			if tt.clock != (at >= 0) {
				t.Errorf("it was told:\n%s", c.words)
			}
			if tt.clock && (at > strings.Index(c.words, "hostname ") || (facts.Clock-time.Hour).Abs() > time.Second) {
				t.Errorf("behind by %s; it was told:\n%s", facts.Clock, c.words)
			}
			if !strings.Contains(c.words, "silent 0\n") {
				t.Errorf("it was not told to be silent:\n%s", c.words)
			}
		})
	}
	_, err := guest.New(&clockwork{out: "cut"}).Settle(t.Context(), "m", guest.Identity{})
	if err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("an answer that is cut short: %v", err)
	}
}
