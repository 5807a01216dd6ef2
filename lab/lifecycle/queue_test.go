package lifecycle

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// line is a queue in a new directory.
func line(t interface{ TempDir() string }) queue {
	return queue{dir: filepath.Join(t.TempDir(), "queue"), poll: time.Millisecond}
}

// TestQueueOrder: first come, first served, and never more than there is room
// for: who is let in has fewer than room before him who are not done.
func TestQueueOrder(t *testing.T) {
	const room, comers = 2, 12
	q := line(t)
	var mu sync.Mutex // guards what follows
	var inside, most int
	var done [comers]bool
	come := make(chan struct{}) // closed when all have come
	var all sync.WaitGroup
	for i := range comers {
		drawn := make(chan struct{})
		begun := sync.OnceFunc(func() { close(drawn) })
		all.Go(func() {
			defer begun()
			leave, err := q.enter(t.Context(), room, func(int) { begun() })
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			before := 0
			for _, d := range done[:i] {
				if !d {
					before++
				}
			}
			mu.Unlock()
			if before >= room {
				t.Errorf("number %d is let in while %d before him are not done", i, before)
			}
			begun()
			<-come
			mu.Lock()
			inside--
			done[i] = true
			mu.Unlock()
			leave()
		})
		<-drawn // so that they come in this order
	}
	close(come)
	all.Wait()
	if most != room {
		t.Errorf("%d at a time, want %d", most, room)
	}
	if _, err := os.Stat(q.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the queue is left behind: %v", err)
	}
}

// TestQueueGivenUp: who stops waiting is ahead of nobody.
func TestQueueGivenUp(t *testing.T) {
	q := line(t)
	leave, err := q.enter(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	if _, err := q.enter(ctx, 1, func(int) { cancel(stop) }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
	leave()
	leave, err = q.enter(t.Context(), 1, func(ahead int) { t.Errorf("%d are ahead", ahead) })
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// queueHolder makes a process that holds a ticket until it is killed.
const queueHolder = "MESH_QUEUE_HOLDER"

func init() {
	if dir := os.Getenv(queueHolder); dir != "" {
		q := queue{dir: dir, poll: time.Millisecond}
		if _, err := q.enter(context.Background(), 1, nil); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("inside\n")
		select {}
	}
}

// TestQueueKilled: a process that is killed makes room.
func TestQueueKilled(t *testing.T) {
	q := line(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), queueHolder+"="+q.dir)
	said, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err == nil {
		_, err = said.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ahead := 0
	leave, err := q.enter(ctx, 1, func(n int) {
		ahead = n
		if err := holder.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = holder.Wait()
	})
	if err != nil || ahead != 1 {
		t.Fatalf("%d were ahead: %v", ahead, err)
	}
	leave()
}

// TestQueueTickets: whoever comes and goes, and whatever dies, those who are let
// in are always the first of those who are there.
func TestQueueTickets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "queue")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		q := queue{dir: dir, poll: time.Millisecond}
		type ticket struct {
			number int
			file   *os.File
		}
		var there []ticket
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				n, f, err := q.draw(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				there = append(there, ticket{n, f})
			},
			"go": func(t *rapid.T) {
				if len(there) == 0 {
					t.Skip("nobody is there")
				}
				i := rapid.IntRange(0, len(there)-1).Draw(t, "who")
				if rapid.Bool().Draw(t, "killed") {
					there[i].file.Close() // its file stays
				} else {
					q.leave(there[i].file)
				}
				there = slices.Delete(there, i, i+1)
			},
			"": func(t *rapid.T) {
				for i, one := range there {
					if n, err := q.ahead(context.Background(), one.number); err != nil || n != i {
						t.Fatalf("number %d has %d ahead, want %d: %v", one.number, n, i, err)
					}
				}
			},
		})
		for _, one := range there {
			q.leave(one.file)
		}
	})
}
