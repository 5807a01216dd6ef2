package verify

// Small parts that are tested alone.
var (
	Available = available
	Nearest   = nearest
	OneLine   = oneLine
)
