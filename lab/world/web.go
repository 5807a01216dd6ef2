package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
)

// web serves one handler on some listeners.
type web struct {
	name      string
	secure    bool
	server    *http.Server
	listeners []net.Listener
}

// newWeb makes a server that speaks TLS if there is a configuration for it.
func newWeb(name string, h http.Handler, secure *tls.Config, log *slog.Logger) *web {
	return &web{name: name, secure: secure != nil, server: &http.Server{
		Handler:           h,
		TLSConfig:         secure,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// listen opens TCP listeners in the namespace that the calling thread is in.
func (w *web) listen(addrs []netip.Addr, port uint16) error {
	for _, a := range addrs {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
		if err != nil {
			return fmt.Errorf("%s: %v", w.name, err)
		}
		w.listeners = append(w.listeners, l)
	}
	return nil
}

// serve answers until ctx is done, which is no error. It closes the listeners.
func (w *web) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() { w.server.Close() })()
	for _, l := range w.listeners {
		group.Go(func() error {
			serve := w.server.Serve
			if w.secure {
				serve = func(l net.Listener) error { return w.server.ServeTLS(l, "", "") }
			}
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("%s on %s: %v", w.name, l.Addr(), err)
			}
			return nil
		})
	}
	return group.Wait()
}
