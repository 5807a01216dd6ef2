package fault

import "slices"

// Kind is what a fault does.
type Kind string

// The kinds. Those of machines are done by the hypervisor or inside the guest,
// all others by the world.
const (
	PowerCut     Kind = "power-cut"
	ResetMachine Kind = "reset"
	Pause        Kind = "pause"
	DiskFull     Kind = "disk-full"
	DiskSlow     Kind = "disk-slow"
	DiskDetached Kind = "disk-detached"
	DiskError    Kind = "disk-error"
	Memory       Kind = "memory"
	ClockStep    Kind = "clock-step"
	ClockDrift   Kind = "clock-drift"

	LinkDown  Kind = "link-down"
	Partition Kind = "partition"
	Loss      Kind = "loss"
	Delay     Kind = "delay"
	RateLimit Kind = "rate"

	DNSFailing      Kind = "dns-failing"
	ServiceStopped  Kind = "service-stopped"
	IssuerSlow      Kind = "issuer-slow"
	IssuerRefusing  Kind = "issuer-refusing"
	IssuerLimited   Kind = "issuer-limited"
	IssuerExpired   Kind = "issuer-expired"
	IssuerBadNonces Kind = "issuer-bad-nonces"
)

// Form is what a kind takes.
type Form struct {
	Kind  Kind   `json:"kind"`
	About string `json:"about"`
	// On are the kinds of targets, none for a kind that strikes what it is named for.
	On []TargetKind `json:"on,omitempty"`
	// Needs and Takes are keys of parameters: those that must and that may be given.
	Needs []string `json:"needs,omitempty"`
	Takes []string `json:"takes,omitempty"`
	// Hows are the values of "how", the first the default.
	Hows []How `json:"hows,omitempty"`
	// Momentary kinds are over at once: there is nothing to undo.
	Momentary bool `json:"momentary,omitempty"`
	// Once kinds cannot strike a machine twice at the same time.
	Once bool `json:"once,omitempty"`
}

var (
	onMachine = []TargetKind{Machine}
	onLinks   = []TargetKind{Machine, Segment, Router}
)

// forms are all kinds there are, in the order in which people are shown them.
var forms = []Form{
	{Kind: PowerCut, About: "the machine ends at once; undone, it boots", On: onMachine, Once: true},
	{Kind: ResetMachine, About: "its reset button is pressed; nothing is flushed", On: onMachine, Momentary: true},
	{Kind: Pause, About: "its processors stand still", On: onMachine, Once: true},
	{Kind: DiskFull, About: "its file system is filled", On: onMachine, Takes: []string{"leave"}, Once: true},
	{Kind: DiskSlow, About: "its disk is slow", On: onMachine, Takes: []string{"rate", "operations"}, Once: true},
	{Kind: DiskDetached, About: "its disk is taken away", On: onMachine, Once: true},
	{Kind: DiskError, About: "its disk answers with errors", On: onMachine, Takes: []string{"how"}, Hows: []How{All, Reads, Writes}, Once: true},
	{Kind: Memory, About: "a process holds memory of it", On: onMachine, Needs: []string{"size"}},
	{Kind: ClockStep, About: "its clock is set forward or back", On: onMachine, Needs: []string{"by"}},
	{Kind: ClockDrift, About: "its clock goes too fast or too slowly", On: onMachine, Needs: []string{"drift"}, Once: true},

	{Kind: LinkDown, About: "its cable is pulled", On: []TargetKind{Machine, Router}},
	{Kind: Partition, About: "nothing passes between two sides", On: []TargetKind{Machine, Segment, World}, Needs: []string{"from"}, Takes: []string{"direction"}},
	{Kind: Loss, About: "some of the frames are lost", On: onLinks, Needs: []string{"share"}, Takes: []string{"direction"}},
	{Kind: Delay, About: "frames come later", On: onLinks, Needs: []string{"delay"}, Takes: []string{"jitter", "reorder", "direction"}},
	{Kind: RateLimit, About: "frames pass at a rate; a few wait, others are lost", On: onLinks, Needs: []string{"rate"}, Takes: []string{"direction"}},

	{Kind: ServiceStopped, About: "a service of the world does not run", On: []TargetKind{Service}},
	{Kind: DNSFailing, About: "the world's DNS does not answer as it should", Takes: []string{"how", "zone"}, Hows: []How{ServFail, Silent, NXDomain}},
	{Kind: IssuerSlow, About: "the issuer answers late", Needs: []string{"delay"}},
	{Kind: IssuerRefusing, About: "the issuer refuses every request", Takes: []string{"how"}, Hows: []How{Unavailable, Internal, Reset}},
	{Kind: IssuerLimited, About: "the issuer answers 429, with Retry-After", Takes: []string{"retry-after"}},
	{Kind: IssuerExpired, About: "the issuer hands out chains of an expired root"},
	{Kind: IssuerBadNonces, About: "the issuer refuses some of the good nonces", Needs: []string{"share"}},
}

// Kinds are all forms there are.
func Kinds() []Form { return slices.Clone(forms) }

// FormOf finds a kind's form.
func FormOf(k Kind) (Form, bool) {
	i := slices.IndexFunc(forms, func(f Form) bool { return f.Kind == k })
	if i < 0 {
		return Form{}, false
	}
	return forms[i], true
}

// OfWorld tells whether the world does a fault, rather than the machine that it
// strikes: faults of services and of what lies between machines, but for the
// cable of a machine, which the guest sees pulled.
func (f Fault) OfWorld() bool {
	switch f.Kind {
	case Partition, Loss, Delay, RateLimit,
		DNSFailing, ServiceStopped, IssuerSlow, IssuerRefusing, IssuerLimited, IssuerExpired, IssuerBadNonces:
		return true
	case LinkDown:
		return len(f.On) > 0 && f.On[0].Kind == Router
	}
	return false
}

// Services are the world's, as targets name them.
var Services = []string{"dhcp", "router-advertisement", "dns", "issuer", "artefacts"}
