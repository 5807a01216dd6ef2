package world

import (
	"context"
	"fmt"

	"mesh/lab/world/namespace"
)

// serve serves until its context is done, which is no error.
type serve = func(context.Context) error

// part is something that serves, and that can be stopped and started again.
type part struct {
	service string
	space   string // the namespace that it is opened in
	open    func() (serve, error)
	end     func() // ends it and waits for its end; nil while it does not serve
}

func (w *World) add(service, space string, open func() (serve, error)) {
	w.parts = append(w.parts, &part{service: service, space: space, open: open})
}

// start makes a part serve until its end is called, whatever becomes of ctx. One
// that serves is left alone.
func (w *World) start(ctx context.Context, p *part) error {
	if p.end != nil {
		return nil
	}
	var run serve
	err := namespace.Do(p.space, func() (err error) {
		run, err = p.open()
		return err
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err != nil {
		cancel()
		if run != nil {
			run(ctx) // it only closes what was opened
		}
		return fmt.Errorf("open %s: %w", p.service, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			w.fail(p.service, err)
		}
	}()
	p.end = func() {
		cancel()
		<-ended
		p.end = nil
	}
	return nil
}

// stop ends all parts.
func (w *World) stop() {
	for _, p := range w.parts {
		if p.end != nil {
			p.end()
		}
	}
}
