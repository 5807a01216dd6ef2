package apply

// Plan is what a pass would do, in order.
type Plan struct{}
