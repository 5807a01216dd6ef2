package declaration

// Status is what became of one resource in a pass.
type Status string

// Every status a result can carry.
const (
	StatusInSync  Status = "in_sync" // matched already; nothing was done
	StatusChanged Status = "changed" // made or put right in this pass
	StatusRemoved Status = "removed" // owned, no longer declared, taken away
	StatusKept    Status = "kept"    // left alone: no longer declared and not recognised as ours, or to be reported only; Reason says why
	StatusWaiting Status = "waiting" // could not be tried yet; Reason says for what
	StatusFailed  Status = "failed"  // tried; Reason says what happened
)

// Result is the outcome for one resource.
type Result struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Where  string `json:"where"` // path, package name, unit or container
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // one line; empty for in_sync
}

// Outcome is what one pass over one declaration came to.
type Outcome struct {
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation"`
	Digest     string   `json:"digest"` // of the declaration applied, as Digest gives it
	Results    []Result `json:"results"`
}
