package declaration

// Container is a container that podman runs, by a systemd unit of its own, from
// an image that is named by its digest. It always runs.
type Container struct {
	Name string `json:"name"` // on the machine it is ContainerPrefix and this
	// Image is registry/repository@sha256:digest. A digest is of the image itself or
	// of an index of images for several architectures.
	Image       string     `json:"image"`
	Arguments   []string   `json:"arguments,omitempty"` // of the image's entry point, instead of the image's own
	Environment []Variable `json:"environment,omitempty"`
	Network     string     `json:"network,omitempty"` // NetworkOwn (also when empty), NetworkHost or NetworkNone
	Ports       []Port     `json:"ports,omitempty"`   // only with NetworkOwn
	Volumes     []Volume   `json:"volumes,omitempty"`
	Secrets     []Secret   `json:"secrets,omitempty"`
	// RestartOn lists IDs of resources declared before this one; when one of
	// them changes, the container is started anew, once, at this place in the order.
	RestartOn []string `json:"restart_on,omitempty"`
}

// The networks a container can have.
const (
	NetworkOwn  = "own"  // one of its own, behind the machine; ports are let through by declaring them
	NetworkHost = "host" // that of the machine
	NetworkNone = "none" // none but its loopback
)

// Variable is one of the environment. It is no place for a secret: everybody on
// the machine may come to see it.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Port lets others reach a port of a container by one of the machine's.
type Port struct {
	Address  string `json:"address,omitempty"` // of the machine; empty means all
	Port     uint16 `json:"port"`              // of the machine
	To       uint16 `json:"to"`                // of the container
	Protocol string `json:"protocol,omitempty"`
}

// Volume is what a container keeps, or is given, at a path inside.
type Volume struct {
	// Source is a path of the machine, which must be there, or the name of a volume
	// that podman makes when it is first used. Nothing of either is ever removed.
	Source   string `json:"source"`
	Target   string `json:"target"` // path inside
	ReadOnly bool   `json:"read_only,omitzero"`
}

// Secret is a file of the machine that a container finds, and cannot change,
// below SecretsPath. Its content is in no command line, no environment, no unit
// and no copy.
type Secret struct {
	Name string `json:"name"` // of the file inside
	Path string `json:"path"` // of the file on the machine
}

// SecretsPath is where a container finds its secrets.
const SecretsPath = "/run/secrets"

// ContainerPrefix begins the name of everything on a machine that belongs to a
// declared container, so that nothing else is ever taken for one.
const ContainerPrefix = "mesh-"

// ContainerUnit is the systemd unit that runs the container of a name.
func ContainerUnit(name string) string { return ContainerPrefix + name + ".service" }

// ContainerFile is what ContainerUnit is made of, by podman's generator.
// https://docs.podman.io/en/latest/markdown/podman-systemd.unit.5.html
func ContainerFile(name string) string {
	return "/etc/containers/systemd/" + ContainerPrefix + name + ".container"
}
