package system_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/system"
	"mesh/host/system/systemtest"
)

const imageOfShop = "registry.test/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// podman is one whose answers the test knows.
func podman(query, change *script, generator bool) *system.Podman {
	return system.NewPodman(system.PodmanConfig{
		List: query, Query: query, Wait: time.Minute, Generator: func() bool { return generator }, Sync: durable(query),
		Change: func(unit string) system.Runner { return named{unit, change} },
	})
}

// durable says in a script that what podman keeps is durable.
func durable(s *script) func() error {
	return func() error { _, err := s.Run(context.Background(), "sync"); return err }
}

// named is a Runner that says in which unit it runs.
type named struct {
	unit string
	next system.Runner
}

func (n named) Run(ctx context.Context, argv ...string) (string, error) {
	return n.next.Run(ctx, append([]string{n.unit + ":"}, argv...)...)
}

// The answers of podman 5.4.2 on Debian 13, shortened. The image was fetched by the
// digest of an index and by its own.
const (
	listOfPodman = `[{"Id": "42be", "Image": "registry.test/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111",
  "ImageID": "351b", "Labels": {"PODMAN_SYSTEMD_UNIT": "mesh-shop.service", "mesh-host.made": "abc"}, "Names": ["mesh-shop"], "State": "running"},
 {"Id": "5aa1", "Image": "registry.example/library/nginx:latest", "ImageID": "77aa", "Labels": null, "Names": ["mesh-web"], "State": "exited"},
 {"Id": "5aa2", "Image": "registry.test/gone@sha256:22", "ImageID": "gone", "Labels": {}, "Names": ["mesh-gone"]},
 {"Id": "5aa3", "Image": "x", "ImageID": "77aa", "Labels": null, "Names": ["foreign"]}]`
	imagesOfPodman = `[{"Id": "351b", "RepoTags": null, "RepoDigests": ["registry.test/shop@sha256:0000", "registry.test/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111"], "Digest": "sha256:0000"},
 {"Id": "77aa", "RepoDigests": ["registry.example/library/nginx@sha256:9"], "Digest": "sha256:9"}]`
)

var onPodman = flag.String("podman", "", "fetch this image, by its digest, with this machine's podman, and make containers of it")

func TestConformanceOfPodman(t *testing.T) {
	if *onPodman == "" {
		t.Skip("it changes this machine's containers: run it with -podman=REGISTRY/IMAGE@DIGEST, as root")
	}
	sh := func(script string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// One of somebody else, which stays where it is when it stops: podman has it in
	// another place than those of units.
	sh("tar --create --files-from=/dev/null | podman import - localhost/foreign && podman create --name foreign localhost/foreign /none")
	defer sh("podman rm foreign && podman rmi localhost/foreign")
	podman := system.New(system.Config{Runtime: t.TempDir()}).Podman
	systemtest.ContainerConformance(t, podman, *onPodman, func(t *testing.T, name, unit, made string) {
		cmd := exec.CommandContext(t.Context(), "podman", "create", "--rm", "--name", name, "--label", "PODMAN_SYSTEMD_UNIT="+unit, "--label", system.LabelMade+"="+made, *onPodman)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
}

// TestPodmanState: every change of what podman has is another state, and no change is
// none.
func TestPodmanState(t *testing.T) {
	if _, err := os.Lstat("/etc/containers/storage.conf"); err == nil {
		t.Skip("podman is told where to keep what it has on this machine")
	}
	storage := t.TempDir()
	if s := system.PodmanState(storage); s != "" {
		t.Errorf("nothing is there: %q", s)
	}
	for _, dir := range []string{"overlay-containers", "overlay-images", "libpod"} {
		if err := os.Mkdir(filepath.Join(storage, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	states := map[string]bool{system.PodmanState(storage): true}
	for i, name := range []string{ // as podman 5.4 and 4.9 have it
		"db.sql", "libpod/bolt_state.db", "overlay-containers/containers.json",
		"overlay-containers/volatile-containers.json", "overlay-images/images.json", "db.sql",
	} {
		path := filepath.Join(storage, name)
		if err := errors.Join(os.WriteFile(path+".new", []byte(strings.Repeat("x", i)), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		states[system.PodmanState(storage)] = true
		if again := system.PodmanState(storage); !states[again] || len(states) != i+2 {
			t.Errorf("%s: %d states; %q", name, len(states), again)
		}
	}
}

func TestContainers(t *testing.T) {
	exitOne := exec.Command("false").Run()
	for _, tt := range []struct {
		name      string
		generator bool
		query     []answer
		want      map[string]system.Container
		err       string
		none      bool
	}{
		{
			name: "what there is", generator: true, query: []answer{{begins: "podman ps --all --no-trunc --format json", output: listOfPodman}, {begins: "podman images --all --no-trunc --format json", output: imagesOfPodman}},
			want: map[string]system.Container{
				"mesh-shop": {Unit: "mesh-shop.service", Made: "abc", Image: "sha256:1111111111111111111111111111111111111111111111111111111111111111"},
				"mesh-web":  {Image: "sha256:9"},
				"mesh-gone": {Image: "unknown, since podman has it no more"},
			},
		},
		{name: "nothing", generator: true, query: []answer{{begins: "podman ps", output: "[]\n"}}, want: map[string]system.Container{}},
		{name: "not JSON", generator: true, query: []answer{{begins: "podman ps", output: "oops"}}, err: "ask podman for its ps: invalid character"},
		{name: "it fails", generator: true, query: []answer{{begins: "podman ps", err: exitOne}}, err: "ask podman for its ps: exit status 1"},
		{name: "too old", query: []answer{{begins: "podman --version", output: "podman version 4.3.1\n"}}, none: true,
			err: "this machine cannot run containers: podman version 4.3.1 is installed, which makes no service of a unit file: podman 4.4 or newer does"},
		{name: "not installed", query: []answer{{begins: "podman --version", err: &exec.Error{Name: "podman", Err: exec.ErrNotFound}}}, none: true,
			err: "this machine cannot run containers: podman is not installed: declare its package before this"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := &script{t: t, answers: tt.query}
			got, err := podman(query, nil, tt.generator).Containers(t.Context(), []string{"mesh-shop", "mesh-web", "mesh-gone", "mesh-none"})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, system.ErrNoContainers) != tt.none {
				t.Errorf("\n got: %v\nwant: …%s…", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(query.answers) > 0 {
				t.Errorf("did not run: %+v", query.answers)
			}
		})
	}
	if found, err := podman(nil, nil, false).Containers(t.Context(), nil); err != nil || len(found) != 0 {
		t.Errorf("nothing was asked: %v %v", found, err)
	}
}

func TestPullImage(t *testing.T) {
	absent, there, sync := answer{begins: "podman image exists -- " + imageOfShop, err: exec.Command("false").Run()}, answer{begins: "podman image exists"}, answer{begins: "sync"}
	pull := answer{begins: "mesh-host-image-1111111111111111.service: podman pull --quiet -- " + imageOfShop}
	busy := answer{begins: "podman pull", output: "Failed to start transient service unit: Unit mesh-host-image-1111111111111111.service was already loaded or has a fragment file.\n", err: errExit}
	fetching, waiting := "fetching "+imageOfShop, "waiting for the fetch of "+imageOfShop+" that goes on"
	for _, tt := range []struct {
		name          string
		query, change []answer
		notes         []string
		err           string
	}{
		{name: "it is there", query: []answer{there, sync}},
		{name: "it cannot be made durable", query: []answer{there, {begins: "sync", err: errExit}}, err: "make image " + imageOfShop + " durable: exit status 100"},
		{name: "it is fetched", query: []answer{absent, sync}, change: []answer{pull}, notes: []string{fetching}},
		{name: "somebody fetches it", query: []answer{absent, absent, there, sync}, change: []answer{busy, busy}, notes: []string{fetching, waiting}},
		{name: "somebody fetched it in vain", query: []answer{absent, absent, sync}, change: []answer{busy, pull}, notes: []string{fetching, waiting}},
		{name: "the registry does not have it", query: []answer{absent}, notes: []string{fetching},
			change: []answer{{begins: "pull", output: "Trying to pull\nError: initializing source docker://x: manifest unknown\n", err: errExit}},
			err:    "fetch image " + imageOfShop + ": podman: exit status 100: Error: initializing source docker://x: manifest unknown"},
		{name: "podman does not say", query: []answer{{begins: "exists", err: errExit}}, err: "ask podman for image " + imageOfShop},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				query, change := &script{t: t, answers: tt.query}, &script{t: t, answers: tt.change}
				var notes []string
				err := podman(query, change, true).PullImage(t.Context(), imageOfShop, func(n string) { notes = append(notes, n) })
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("\n got: %v\nwant: …%s…", err, tt.err)
				}
				if diff := cmp.Diff(tt.notes, notes); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if left := append(query.answers, change.answers...); len(left) > 0 {
					t.Errorf("did not run: %+v", left)
				}
			})
		})
	}
}

// endless never answers, and is never there.
type endless struct{ absent error }

func (e endless) Run(ctx context.Context, argv ...string) (string, error) {
	for _, arg := range argv {
		if arg == "exists" {
			return "", e.absent
		}
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// TestCaseH7PullImageThatFailsIsTriedEverMoreRarely: a registry that does not have it, for
// a day, is asked with growing delays, and asked again at once when it was had.
func TestCaseH7PullImageThatFailsIsTriedEverMoreRarely(t *testing.T) {
	absent := answer{begins: "podman image exists", err: exec.Command("false").Run()}
	fails := answer{begins: "podman pull", output: "Error: manifest unknown\n", err: errExit}
	synctest.Test(t, func(t *testing.T) {
		query, change := &script{t: t}, &script{t: t}
		p := system.NewPodman(system.PodmanConfig{
			Query: query, Generator: func() bool { return true }, Jitter: func() float64 { return 1 }, Sync: func() error { return nil },
			Change: func(string) system.Runner { return change },
		})
		var tried []time.Duration
		began := time.Now()
		pull := func(with answer) (err error, ran bool) {
			query.answers, change.answers = []answer{absent}, []answer{with}
			err = p.PullImage(t.Context(), imageOfShop, func(string) {})
			return err, len(change.answers) == 0
		}
		for time.Since(began) < time.Hour {
			err, ran := pull(fails)
			if err == nil || !strings.Contains(err.Error(), "manifest unknown") || !ran && !strings.Contains(err.Error(), "; it is tried again at ") {
				t.Fatal(err)
			}
			if ran {
				tried = append(tried, time.Since(began))
			}
			time.Sleep(5 * time.Second)
		}
		want := []time.Duration{0, 15 * time.Second, 45 * time.Second, 105 * time.Second, 225 * time.Second, 465 * time.Second, 945 * time.Second, 1545 * time.Second, 2145 * time.Second, 2745 * time.Second, 3345 * time.Second}
		if diff := cmp.Diff(want, tried); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Minute)
		if err, ran := pull(answer{begins: "podman pull"}); err != nil || !ran {
			t.Fatal(err)
		}
		if err, ran := pull(fails); err == nil || !ran {
			t.Errorf("it was had and then lost: %v", err)
		}
		if _, ran := pull(fails); ran {
			t.Error("it was tried again at once")
		}
	})
}

// TestCaseH7PullImageNeedsRoom: nothing is fetched to a disk that is nearly full, and
// it is fetched at once when there is room.
func TestCaseH7PullImageNeedsRoom(t *testing.T) {
	absent := answer{begins: "podman image exists", err: exec.Command("false").Run()}
	query, change := &script{t: t, answers: []answer{absent, absent}}, &script{t: t, answers: []answer{{begins: "podman pull"}}}
	room := errors.New("67108864 bytes do not fit")
	p := system.NewPodman(system.PodmanConfig{
		Query: query, Generator: func() bool { return true }, Sync: func() error { return nil },
		Change: func(string) system.Runner { return change }, Room: func() error { return room },
	})
	err := p.PullImage(t.Context(), imageOfShop, func(string) {})
	if err == nil || err.Error() != "fetch image "+imageOfShop+": 67108864 bytes do not fit" || len(change.ran) > 0 {
		t.Errorf("%v; %q ran", err, change.ran)
	}
	room = nil
	if err := p.PullImage(t.Context(), imageOfShop, func(string) {}); err != nil || len(change.ran) != 1 {
		t.Errorf("%v; %q ran", err, change.ran)
	}
}

// TestPullImageHasADeadline: other resources have their turn after it.
func TestPullImageHasADeadline(t *testing.T) {
	absent := exec.Command("false").Run()
	synctest.Test(t, func(t *testing.T) {
		e := endless{absent}
		p := system.NewPodman(system.PodmanConfig{
			Query: e, Wait: time.Minute, Generator: func() bool { return true }, Change: func(string) system.Runner { return e },
		})
		began := time.Now()
		err := p.PullImage(t.Context(), imageOfShop, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "it is not there after 1m0s; its fetch goes on") || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestRemoveContainer(t *testing.T) {
	query := &script{t: t, answers: []answer{{begins: "podman rm --volumes --ignore -- mesh-shop"}, {begins: "podman rm", err: errExit}, {begins: "podman --version", output: "podman version 4.3.1"}}}
	if err := podman(query, nil, true).RemoveContainer(t.Context(), "mesh-shop"); err != nil {
		t.Error(err)
	}
	if err := podman(query, nil, true).RemoveContainer(t.Context(), "mesh-shop"); err == nil || !strings.HasPrefix(err.Error(), "remove container mesh-shop: ") {
		t.Error(err)
	}
	if err := podman(query, nil, false).RemoveContainer(t.Context(), "mesh-shop"); !errors.Is(err, system.ErrNoContainers) {
		t.Error(err)
	}
}

func TestImages(t *testing.T) {
	list := `[{"Id":"c1","Names":["web"],"ImageID":"1"},{"Id":"c2","Names":[],"ImageID":"1"},{"Id":"c3","Names":["other"],"ImageID":"2"}]`
	images := `[{"Id":"1","RepoDigests":["r.test/a@sha256:1","r.test/a@sha256:9"]},{"Id":"3","RepoDigests":["r.test/b@sha256:3"]},{"Id":"4","RepoDigests":null}]`
	query := &script{t: t, answers: []answer{{begins: "podman images --all --no-trunc --format json", output: images}, {begins: "podman ps --all --no-trunc --format json", output: list}}}
	got, err := podman(query, nil, true).Images(t.Context(), []string{"r.test/a@sha256:9", "r.test/b@sha256:3", "r.test/a@sha256:3"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"r.test/a@sha256:9": {"c2", "web"}, "r.test/b@sha256:3": nil}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if found, err := podman(nil, nil, false).Images(t.Context(), nil); err != nil || len(found) != 0 {
		t.Errorf("nothing was asked: %v %v", found, err)
	}
	query = &script{t: t, answers: []answer{{begins: "podman --version", output: "podman version 4.3.1"}}}
	if _, err := podman(query, nil, false).Images(t.Context(), []string{imageOfShop}); !errors.Is(err, system.ErrNoContainers) {
		t.Error(err)
	}
}

func TestRemoveImage(t *testing.T) {
	remove, used := "podman image rm --ignore --no-prune -- "+imageOfShop, exec.Command("sh", "-c", "exit 2").Run()
	for _, tt := range []struct {
		name  string
		query []answer
		err   string
		used  bool
	}{
		{name: "it is removed", query: []answer{{begins: remove}, {begins: "sync"}}},
		{name: "its removal cannot be made durable", query: []answer{{begins: remove}, {begins: "sync", err: errExit}}, err: "make the removal of image " + imageOfShop + " durable: "},
		{name: "something is made of it", query: []answer{{begins: remove, err: used}}, err: "remove image " + imageOfShop + ": something is made of it: exit status 2", used: true},
		{name: "it fails", query: []answer{{begins: remove, err: errExit}}, err: "remove image " + imageOfShop + ": "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := &script{t: t, answers: tt.query}
			err := podman(query, nil, true).RemoveImage(t.Context(), imageOfShop)
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) || errors.Is(err, system.ErrInUse) != tt.used {
				t.Errorf("\n got: %v\nwant: %s…", err, tt.err)
			}
			if len(query.answers) > 0 {
				t.Errorf("did not run: %+v", query.answers)
			}
		})
	}
}

func FuzzContainers(f *testing.F) {
	f.Add([]byte(listOfPodman), []byte(imagesOfPodman))
	f.Add([]byte(`[]`), []byte(`null`))
	f.Add([]byte(`[{"Names":["mesh-shop"],"ImageID":"a","Image":"@"}]`), []byte(`[{"Id":"a","RepoDigests":["@"]}]`))
	f.Fuzz(func(t *testing.T, list, images []byte) {
		p := podman(&script{t: t, answers: []answer{{output: string(list)}, {output: string(images)}}}, nil, true)
		found, err := p.Containers(t.Context(), []string{"mesh-shop"})
		if err != nil && found != nil {
			t.Errorf("%v came with %v", found, err)
		}
		for name := range found {
			if name != "mesh-shop" {
				t.Errorf("%q was not asked for", name)
			}
		}
	})
}
