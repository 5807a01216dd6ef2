package agent

import (
	"context"
	"errors"
	"fmt"

	"mesh/host/apply"
)

// Rehearse does everything that a pass does but for its acts: it opens the
// record, reads what is held, looks at the machine and decides. It needs no
// network, and waits for the pass of another process like Pass.
func (h *Hand) Rehearse(ctx context.Context) (err error) {
	record, err := h.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	held, err := record.Held()
	if held == nil {
		return err
	}
	desired, err := Desired(*held)
	if err != nil {
		return fmt.Errorf("read the declaration held: %w", err)
	}
	if _, err := apply.Foresee(ctx, h.Machine, record.View(), desired); err != nil {
		return fmt.Errorf("look at this machine: %w", err)
	}
	return nil
}
