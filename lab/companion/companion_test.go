package companion_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"mesh/lab/companion"
)

// TestMain is a companion, too, when its arguments say so.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "accompany" {
		accompany(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

func accompany(how string) {
	switch how {
	case "well":
		fmt.Println("ready")
	case "keeping", "keeping nothing":
		// The program leaves one that sleeps behind, and its number in the log's directory.
		script := "sleep 60 & echo $! >left; mv left number"
		if how == "keeping nothing" {
			script = "echo this is why >&2; exit 3"
		}
		if err := os.Chdir(os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := companion.Keep(context.Background(), os.Stdout, os.Stderr, "/bin/sh", "-c", script); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "badly":
		fmt.Fprintln(os.Stderr, "earlier\nthis is why")
		os.Exit(3)
	}
	bufio.NewReader(os.Stdin).ReadString('\n') // stdin is empty
	told := make(chan os.Signal, 1)            // one that waits for nothing at all is taken for a deadlock
	signal.Notify(told, unix.SIGTERM)
	<-told
}

func start(t *testing.T, how string) (companion.Process, error) {
	t.Helper()
	return startIn(t, how, t.TempDir())
}

func startIn(t *testing.T, how, dir string) (companion.Process, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("too late"))
	defer cancel()
	return companion.Start(ctx, companion.Command{
		Exe: exe, Args: []string{"accompany", how, dir}, Log: filepath.Join(t.TempDir(), "log"),
	})
}

// TestLife starts a companion, finds it by its arguments, and ends it.
func TestLife(t *testing.T) {
	p, err := start(t, "well")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("it counts as dead before its death")
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
	for _, c := range []struct {
		args []string
		want bool
	}{{args, true}, {args[:2], false}, {append(args[:3:3], "more"), false}, {nil, false}} {
		found, err := companion.Find(c.args...)
		is := false
		for _, one := range found {
			is = is || one == p
		}
		if is != c.want || err != nil {
			t.Errorf("found by %q: %v, %v; want %v", c.args, is, err, c.want)
		}
	}
	if err := companion.End(t.Context(), p.PID, func() bool { return false }); err != nil || !p.Alive() {
		t.Errorf("another one's end: %v, and alive is %v", err, p.Alive())
	}
	for range 2 {
		if err := companion.End(t.Context(), p.PID, p.Alive); err != nil || p.Alive() {
			t.Errorf("its end: %v, and alive is %v", err, p.Alive())
		}
	}
}

// TestStartFails says why, and leaves no process.
func TestStartFails(t *testing.T) {
	if _, err := start(t, "badly"); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.HasSuffix(err.Error(), "this is why") {
		t.Errorf("a companion that ends: %v", err)
	}
	if _, err := start(t, "silently"); err == nil || err.Error() != "too late" {
		t.Errorf("a companion that does not come to it: %v", err)
	}
}

// TestZombie: a process that has ended and was not waited for is no process.
func TestZombie(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	p, err := companion.ProcessOf(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("it counts as alive")
	}
}

// TestSocket claims a socket that nobody answers at, and no other.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	client := companion.NewClient(path, "it")
	if _, err := client.Ask(t.Context(), "GET", "/", nil); !errors.Is(err, companion.ErrAbsent) {
		t.Errorf("nobody's answer: %v, want ErrAbsent", err)
	}
	stale, err := companion.Claim(path, "it")
	if err != nil {
		t.Fatal(err)
	}
	stale.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := companion.Claim(path, "it")
	if err != nil {
		t.Fatal("a stale socket: ", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.Error(out, "no such path", http.StatusNotFound)
			return
		}
		fmt.Fprint(out, r.Method)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Close()
		<-served
	}()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if _, err := companion.Claim(path, "it"); err == nil || !strings.Contains(err.Error(), "it already answers") {
		t.Errorf("a second claim: %v", err)
	}
	if got, err := client.Ask(t.Context(), "PUT", "/", nil); err != nil || string(got) != "PUT" {
		t.Errorf("answer: %q, %v", got, err)
	}
	if _, err := client.Ask(t.Context(), "GET", "/other", nil); err == nil || !strings.Contains(err.Error(), "404 Not Found: no such path") {
		t.Errorf("refused answer: %v", err)
	}
}
