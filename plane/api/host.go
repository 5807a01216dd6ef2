package api

import (
	"context"

	"mesh/host/inventory"
	"mesh/plane/declare"
	"mesh/plane/registry"
)

func describeHost(p registry.HostPackage) HostPackage {
	return HostPackage{Architecture: p.Architecture, Version: p.Version, Digest: p.Content.Digest, Bytes: p.Content.Bytes, Since: p.Since, Downgrade: p.Downgrade}
}

// hostAbove is the version that is not declared to a node because a higher one
// runs there; empty where that is not so.
func (s *Server) hostAbove(ctx context.Context, on inventory.Profile) (string, error) {
	all, err := s.Reader.HostPackages(ctx)
	for _, p := range all {
		if declare.Spares(p, on) {
			return p.Version, err
		}
	}
	return "", err
}

func (s *Server) host(ctx context.Context, _ *Empty) (*HostPackages, error) {
	all, err := s.Reader.HostPackages(ctx)
	answer := &HostPackages{Packages: make([]HostPackage, len(all))}
	for i, p := range all {
		answer.Packages[i] = describeHost(p)
	}
	return answer, err
}

func (s *Server) setHost(ctx context.Context, r *SetHostRequest) (*SetHostResponse, error) {
	done, err := s.HostSetter.SetHost(ctx, r.Deb, r.Downgrade)
	return &SetHostResponse{describeHost(done.Package), done.Changed, list(done.Nodes), list(done.Notes)}, err
}

func (s *Server) unsetHost(ctx context.Context, _ *Empty) (*UnsetHostResponse, error) {
	done, err := s.HostSetter.UnsetHost(ctx)
	return &UnsetHostResponse{done.Changed, list(done.Nodes), list(done.Notes)}, err
}
