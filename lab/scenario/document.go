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
	Kind text     `yaml:"kind" jsonschema:"required,enum=public,enum=site" jsonschema_description:"public: the outside, where the world's services stand. site: a private network that reaches others through a router only."`
	IPv4 text     `yaml:"ipv4" jsonschema_description:"IPv4 range, from /8 to /29, for example 192.168.1.0/24."`
	IPv6 text     `yaml:"ipv6" jsonschema_description:"IPv6 range, a /64, for example 2001:db8:114::/64."`
}

type router struct {
	At      Position `yaml:"-"`
	Inside  text     `yaml:"inside" jsonschema:"required" jsonschema_description:"The site whose way out this is."`
	Outside text     `yaml:"outside" jsonschema:"required" jsonschema_description:"The segment it leads to."`
	NAT     text     `yaml:"nat" jsonschema:"enum=easy,enum=none,default=easy" jsonschema_description:"Translation of IPv4. easy: endpoint-independent mapping. none: plain routing. IPv6 is always routed, behind a firewall that lets only answers in."`
}

type vm struct {
	At       Position   `yaml:"-"`
	Image    text       `yaml:"image" jsonschema:"default=debian-13" jsonschema_description:"The image recipe it is made from; see lab image list."`
	Memory   size       `yaml:"memory" jsonschema_description:"Memory as a whole number of MiB or GiB, at least 256MiB; 512MiB where nothing is said."`
	CPUs     number     `yaml:"cpus" jsonschema:"minimum=1,maximum=64,default=1" jsonschema_description:"Virtual processors."`
	Segments list[text] `yaml:"segments" jsonschema:"required" jsonschema_description:"The segments it stands in, one network card for each, in order."`
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
