package world

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"mesh/lab/world/capture"
	"mesh/lab/world/namespace"
)

// captureLimit is how much is kept of one segment, in bytes.
const captureLimit = 8 << 20

// capture keeps the last frames of each segment, in a directory beside the log,
// until ctx is done. A world without captures is a nuisance, one that does not
// serve is none: what fails is logged.
func (w *World) capture(ctx context.Context) error {
	dir := filepath.Join(filepath.Dir(w.config.Log), "captures")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.log.Warn("nothing is captured", "err", err)
		return nil
	}
	var capturing sync.WaitGroup
	defer capturing.Wait()
	for _, s := range w.config.Underlay.Segments {
		capturing.Go(func() {
			var c *capture.Capture
			err := namespace.Do(w.config.Underlay.Namespace, func() (err error) {
				c, err = capture.Open(s.Bridge, filepath.Join(dir, s.Name+".pcap"), captureLimit)
				return err
			})
			if err == nil {
				err = c.Run(ctx)
			}
			if err != nil {
				w.log.Warn("segment is not captured", "segment", s.Name, "err", err)
			}
		})
	}
	return nil
}
