package systemtest

import (
	"fmt"
	"math/rand/v2"
)

// Loss decides what of the changes that were not synced a power cut takes.
type Loss struct {
	Name string
	// Keeps says whether change i of n survives.
	Keeps func(i, n int) bool
	// Torn is what a write that survives leaves on the disk; nil means all of it.
	Torn func(data []byte) []byte
}

// Losses are the losses to try where pending changes were not synced: nothing,
// everything, each change alone lost, each alone kept, the last write torn, and
// some at random.
func Losses(pending int, random *rand.Rand) []Loss {
	all := func(int, int) bool { return true }
	losses := []Loss{{Name: "nothing lost", Keeps: all}}
	if pending == 0 {
		return losses
	}
	losses = append(losses, Loss{Name: "everything lost", Keeps: func(int, int) bool { return false }})
	for k := range pending {
		losses = append(losses,
			Loss{Name: fmt.Sprintf("only change %d lost", k), Keeps: func(i, _ int) bool { return i != k }},
			Loss{Name: fmt.Sprintf("only change %d kept", k), Keeps: func(i, _ int) bool { return i == k }},
			Loss{Name: fmt.Sprintf("changes from %d lost", k), Keeps: func(i, _ int) bool { return i < k }})
	}
	for range 4 {
		seed := random.Uint64()
		losses = append(losses, Loss{Name: fmt.Sprintf("random %d", seed), Keeps: func(i, n int) bool {
			return rand.New(rand.NewPCG(seed, uint64(i))).IntN(2) == 0
		}})
	}
	return append(losses,
		Loss{Name: "writes torn", Keeps: all, Torn: func(data []byte) []byte { return data[:len(data)/2] }},
		Loss{Name: "writes lose their last byte", Keeps: all, Torn: func(data []byte) []byte { return data[:len(data)-1] }},
		Loss{Name: "writes have a hole", Keeps: all, Torn: hole})
}

// Parts are all the losses there are, but for torn writes, where pending changes were
// not synced: of each part of them, 2 to the power of pending.
func Parts(pending int) []Loss {
	losses := make([]Loss, 1<<pending)
	for kept := range losses {
		losses[kept] = Loss{Name: fmt.Sprintf("only changes %0*b kept", pending, kept), Keeps: func(i, _ int) bool { return kept>>i&1 == 1 }}
	}
	return losses
}

// hole keeps the second half of a write, as a disk may that writes it in blocks.
func hole(data []byte) []byte {
	return append(make([]byte, len(data)/2), data[len(data)/2:]...)
}
