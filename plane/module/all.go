package module

import (
	_ "embed"

	"mesh/host/declaration"
	"mesh/plane/config"
)

// All is every module there is.
func All() []Module { return []Module{Host(), Plane(), Welcome()} }

// Host is the program that applies what is declared: in the version that its
// operator gave the plane, else in whichever a node has.
func Host() Module {
	return Module{
		Name:          "host",
		Summary:       "mesh-host itself, in the version that `host set` gave",
		Presence:      Everywhere,
		Instantiation: Any,
		Resources: func(f Facts) []declaration.Resource {
			if f.Host == nil {
				return nil
			}
			return []declaration.Resource{{ID: "host/package", Package: f.Host}}
		},
	}
}

// Plane is the plane itself, on the node of the machine it runs on. Its
// resources are also the bundle the first node is raised from.
func Plane() Module {
	return Module{
		Name:          "plane",
		Summary:       "the control plane of this mesh",
		Presence:      BesidePlane,
		Instantiation: ExactlyOne,
		Resources: func(f Facts) []declaration.Resource {
			return []declaration.Resource{
				{ID: "plane/package", Package: &declaration.Package{Name: "mesh-plane"}},
				{ID: "plane/config", File: &declaration.File{Path: config.Path, Mode: "0644", Content: f.PlaneConfig}},
				{ID: "plane/service", Service: &declaration.Service{Unit: "mesh-plane.service", RestartOn: []string{"plane/config"}}},
			}
		},
	}
}

//go:embed welcome.html
var welcomePage string

//go:embed welcome.conf
var welcomeSite string

// Welcome serves one page on port 8080. It shows that a declaration arrives: a
// directory, a file, a package and a service.
func Welcome() Module {
	return Module{
		Name:          "welcome",
		Summary:       "one page on port 8080, to see that the mesh works",
		Presence:      Anywhere,
		Instantiation: Any,
		Resources: func(Facts) []declaration.Resource {
			return []declaration.Resource{
				{ID: "welcome/directory", Directory: &declaration.Directory{Path: "/srv/welcome", Mode: "0755"}},
				{ID: "welcome/page", File: &declaration.File{Path: "/srv/welcome/index.html", Mode: "0644", Content: welcomePage}},
				{ID: "welcome/package", Package: &declaration.Package{Name: "nginx"}},
				{ID: "welcome/site", File: &declaration.File{Path: "/etc/nginx/conf.d/welcome.conf", Mode: "0644", Content: welcomeSite}},
				{ID: "welcome/service", Service: &declaration.Service{Unit: "nginx.service", RestartOn: []string{"welcome/site"}}},
			}
		},
	}
}
