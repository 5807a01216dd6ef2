package scenario

// The document as it is written. These types are the one place that says which
// keys there are: Parse reads by them, and Schema describes them. Tags are those
// of github.com/invopop/jsonschema; of `jsonschema:` the decoder honours
// required, enum, minimum and maximum. At is zero where something else than a
// mapping was written.

type document struct {
	Name     text              `yaml:"name" jsonschema:"required" jsonschema_description:"What the scenario is called; it is raised under this name unless another is given."`
	About    text              `yaml:"about" jsonschema_description:"One line for people."`
	Segments mapping[segment]  `yaml:"segments" jsonschema:"required" jsonschema_description:"The networks, by name. At least one is public."`
	Routers  mapping[router]   `yaml:"routers" jsonschema_description:"The ways out of sites, by name."`
	Machines mapping[vm]       `yaml:"machines" jsonschema:"required" jsonschema_description:"The virtual machines, by name, which is their host name, too."`
	Place    list[instruction] `yaml:"place" jsonschema_description:"What to place on the machines once they are up, in order."`
}

type segment struct {
	At   Position `yaml:"-"`
	Kind text     `yaml:"kind" jsonschema:"required,enum=public,enum=site,enum=carrier,enum=isolated" jsonschema_description:"public: the outside; several are several providers, the world's services stand in the first. site: a private network that reaches others through a router only. carrier: a provider's network of 100.64.0.0/10, behind a router that translates once more. isolated: a network that nothing leads out of."`
	IPv4 text     `yaml:"ipv4" jsonschema_description:"IPv4 range, from /8 to /29, for example 192.168.1.0/24."`
	IPv6 text     `yaml:"ipv6" jsonschema_description:"IPv6 range, a /64, for example 2001:db8:114::/64."`
}

type router struct {
	At       Position      `yaml:"-"`
	Inside   text          `yaml:"inside" jsonschema:"required" jsonschema_description:"The site or the carrier's network whose way out this is."`
	Outside  text          `yaml:"outside" jsonschema:"required" jsonschema_description:"The segment it leads to."`
	Roams    list[text]    `yaml:"roams" jsonschema_description:"Other segments that its outside can be moved to while the scenario runs; see lab roam."`
	NAT      text          `yaml:"nat" jsonschema:"enum=easy,enum=hard,enum=one-to-one,enum=none,default=easy" jsonschema_description:"Translation of IPv4. easy: one outside port for each inside port, whatever the destination, and open to everybody while it is in use. hard: another random port for each destination, open to its answers alone. one-to-one: each machine inside has an outside address of its own. none: plain routing. IPv6 is always routed."`
	Firewall text          `yaml:"firewall" jsonschema:"enum=home,enum=closed,enum=open,default=home" jsonschema_description:"What comes in that answers nothing. home: of IPv4 what the NAT lets in, of IPv6 nothing. closed: nothing. open: of IPv4 what the NAT lets in, of IPv6 everything."`
	MTU      number        `yaml:"mtu" jsonschema:"minimum=1280,maximum=1500" jsonschema_description:"The longest packet that passes, in bytes."`
	TooBig   text          `yaml:"too-big" jsonschema:"enum=told,enum=lost,default=told" jsonschema_description:"What happens to longer packets that may not be cut. told: their sender is told the MTU. lost: they vanish, a black hole."`
	Forwards list[forward] `yaml:"forwards" jsonschema_description:"Ports of its outside IPv4 address that lead to machines inside, for whoever calls from outside; there is no hairpin."`
}

type forward struct {
	At       Position `yaml:"-"`
	Protocol text     `yaml:"protocol" jsonschema:"enum=tcp,enum=udp,default=tcp" jsonschema_description:"What is forwarded."`
	Port     number   `yaml:"port" jsonschema:"required,minimum=1,maximum=65535" jsonschema_description:"The port outside."`
	To       text     `yaml:"to" jsonschema:"required" jsonschema_description:"The machine inside."`
	PortTo   number   `yaml:"at" jsonschema:"minimum=1,maximum=65535" jsonschema_description:"The port on the machine; the same as outside where nothing is said."`
}

type vm struct {
	At       Position   `yaml:"-"`
	Image    text       `yaml:"image" jsonschema:"default=debian-13" jsonschema_description:"The image recipe it is made from; see lab image list."`
	Memory   size       `yaml:"memory" jsonschema_description:"Memory as a whole number of MiB or GiB, at least 256MiB; 512MiB where nothing is said."`
	CPUs     number     `yaml:"cpus" jsonschema:"minimum=1,maximum=64,default=1" jsonschema_description:"Virtual processors."`
	Segments list[text] `yaml:"segments" jsonschema:"required" jsonschema_description:"The segments it stands in, one network card for each, in order."`
	Roams    list[text] `yaml:"roams" jsonschema_description:"Other segments that its only network card can be moved to while the scenario runs; see lab roam."`
	Display  toggle     `yaml:"display" jsonschema_description:"Whether it has a display, for lab screenshot; it boots then instead of starting warm."`
}

type instruction struct {
	At      Position `yaml:"-"`
	On      text     `yaml:"on" jsonschema:"required" jsonschema_description:"The machine."`
	Package text     `yaml:"package" jsonschema_description:"A package of the world's repository to install."`
	File    text     `yaml:"file" jsonschema_description:"A file beside the scenario to copy to the path in to."`
	To      text     `yaml:"to" jsonschema_description:"Absolute path on the machine."`
	Run     text     `yaml:"run" jsonschema_description:"A command line for /bin/sh."`
	Input   text     `yaml:"input" jsonschema_description:"The name of an earlier save, given to run on its standard input."`
	Save    text     `yaml:"save" jsonschema_description:"Keep what run prints under this name; it is never shown."`
}
