package images

// Sources are the source lines of a release, from the targets of some machine.
func Sources(targets, suite string) ([]string, error) {
	return archive{targets: targets}.sources(suite)
}

// Reach is what is kept of a machine's settings of apt.
func Reach(options string) string { return string(archive{options: options}.reach()) }

// Bootstrap is the command that makes a tree.
func Bootstrap(r Recipe, targets, work, root string) ([]string, error) {
	return bootstrap(r, archive{targets: targets}, work, root)
}

// Inside and Quote are pieces of shell text.
var (
	Inside = inside
	Quote  = quote
)

// CheckManifest parses a manifest.
func CheckManifest(content []byte) error {
	_, err := parseManifest(content)
	return err
}

// CheckWarmManifest parses a warm image's.
func CheckWarmManifest(content []byte) error {
	_, err := parseWarmManifest(content)
	return err
}
