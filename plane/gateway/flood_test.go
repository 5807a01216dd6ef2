package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/gateway"
	"mesh/plane/planetest"
)

// The flood comes from a process of its own, so that what it takes is not
// counted as the plane's. These tell it where to go.
const (
	floodAddress = "MESH_TEST_FLOOD_ADDRESS"
	floodPin     = "MESH_TEST_FLOOD_PIN"
)

// TestCaseP10 sends 1,000 bodies of 1 GB without a node's key over 32
// connections at once, half of which say so beforehand: what the plane holds
// rises by at most 16 MB, and it answers on.
func TestCaseP10(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Limits.Burst = 1 << 20 })
	ctx := timeout(t)
	r.enrolled(ctx, "early") // what the first use of anything takes is not the flood's
	runtime.GC()
	before := held()

	flooding, flooded := context.WithCancel(ctx)
	most := make(chan int64)
	go func() { most <- mostHeld(flooding) }()
	flood := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFlood$", "-test.v")
	flood.Env = append(os.Environ(), floodAddress+"="+r.address, floodPin+"="+r.Mesh.LinkKey.Pin().String())
	out, err := flood.CombinedOutput()
	flooded()
	grown := <-most - before
	if err != nil || !strings.Contains(string(out), "--- PASS: TestFlood") {
		t.Fatalf("%v\n%s", err, out)
	}
	if grown > 16<<20 {
		t.Errorf("the plane held %d bytes more", grown)
	} else {
		t.Logf("the plane held at most %d KiB more", grown>>10)
	}
	r.enrolled(ctx, "late")
}

// held is how much of the heap was in use when it was last looked through.
func held() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// mostHeld is the greatest of held until ctx ends.
func mostHeld(ctx context.Context) int64 {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for most := int64(0); ; {
		most = max(most, held())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return most
		}
	}
}

// TestFlood is the other process of TestCaseP10.
func TestFlood(t *testing.T) {
	if os.Getenv(floodAddress) == "" {
		t.Skip("it is started by TestCaseP10")
	}
	pin, err := identity.ParsePin(os.Getenv(floodPin))
	if err != nil {
		t.Fatal(err)
	}
	ctx := timeout(t)
	var wg sync.WaitGroup
	for i := range 32 {
		h := planetest.NewHost(t, fmt.Sprint("h", i), os.Getenv(floodAddress), pin)
		for j := range 32 {
			wg.Go(func() {
				body := new(endless)
				procedure := []string{link.ProcedureEnrol, link.ProcedureReport, link.ProcedureWatch}[j%3]
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL(procedure), io.LimitReader(body, 1<<30))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				if i%2 == 0 {
					req.ContentLength = 1 << 30
				}
				res, err := h.HTTP().Do(req)
				if err != nil {
					return // cut off, which is an answer too
				}
				res.Body.Close()
				if res.StatusCode == http.StatusOK {
					t.Errorf("%s: %s", procedure, res.Status)
				}
				if body.sent > 4<<20 {
					t.Errorf("%s: %d bytes were let come", procedure, body.sent)
				}
			})
		}
	}
	wg.Wait()
}

// endless is a body that never ends.
type endless struct{ sent int64 }

func (e *endless) Read(b []byte) (int, error) {
	e.sent += int64(len(b))
	return len(b), nil
}
