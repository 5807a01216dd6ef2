package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/watch"
)

// shortestWatch keeps watching from being a load of its own.
const shortestWatch = 200 * time.Millisecond

func newWatch(a *app) *cobra.Command {
	var every time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch scenarios: machines, what they use, services, faults",
		Long: `Watch one scenario, or all that are raised: their machines with state, start,
load and addresses, the world's services, and the faults in force. CPU is of one
processor of this machine, MEMORY of its memory.

On a terminal it is a screen that renews itself; q leaves. Elsewhere, and with
--json, it prints a line for each change, the first look's state first, until it
is interrupted or the scenario is destroyed.`,
		Example: `  lab watch first-node
  lab watch --json | jq 'select(.what == "state")'`,
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			if every < shortestWatch {
				return cli.WithCode(cli.Usage, fmt.Errorf("--every %s: looking costs machines something; not more often than every %s", every, shortestWatch))
			}
			look := a.looker(args)
			first, err := look(c.Context())
			if err != nil {
				return err
			}
			out, ok := a.Out.(*os.File)
			if asJSON || !ok || !term.IsTerminal(int(out.Fd())) {
				return a.report(c.Context(), first, look, every, asJSON, len(args) == 1)
			}
			return a.screen(c.Context(), first, look, every)
		},
	}
	c.Flags().DurationVar(&every, "every", 2*time.Second, "how often to look")
	c.Flags().BoolVar(&asJSON, "json", false, "print changes as JSON, one document a line")
	return c
}

// look looks at what is watched; names that are gone are left out.
type look func(ctx context.Context) (watch.Look, error)

// looker looks at the scenarios that are named, or at all. The first look fails
// for a name that is not raised; later ones leave it out.
func (a *app) looker(names []string) look {
	cfg, lab := a.lab()
	seen := false
	return func(ctx context.Context) (watch.Look, error) {
		wanted := names
		if len(names) == 0 {
			var err error
			if wanted, err = lab.Names(); err != nil {
				return watch.Look{}, err
			}
		}
		now := watch.Look{At: time.Now()}
		for _, name := range wanted {
			s, err := lab.Status(ctx, name)
			if errors.Is(err, lifecycle.ErrAbsent) && (seen || len(names) == 0) {
				continue
			}
			if err != nil && len(names) > 0 {
				return watch.Look{}, err
			}
			if err != nil {
				now.Scenes = append(now.Scenes, watch.Scene{Name: name, Phase: "unknown", Note: err.Error()})
				continue
			}
			now.Scenes = append(now.Scenes, scene(s, uses(ctx, cfg.Abuse, s)))
		}
		seen = true
		return now, nil
	}
}

// uses asks what each machine has used; a machine that cannot be asked is left out.
func uses(ctx context.Context, abuse machine.Abuse, s lifecycle.Status) map[string]machine.Load {
	all := map[string]machine.Load{}
	var mu sync.Mutex // guards all
	var asking sync.WaitGroup
	for _, m := range s.Machines {
		asking.Go(func() {
			if l, err := abuse.Load(ctx, m.Domain); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all[m.Name] = l
			}
		})
	}
	asking.Wait()
	return all
}

// scene is a status as it is watched.
func scene(s lifecycle.Status, used map[string]machine.Load) watch.Scene {
	w := watch.Scene{
		Name: s.Name, Phase: string(s.Phase), Note: s.Abandoned, Accelerator: string(s.Accelerator), Since: s.Since,
		World: s.World.Problem,
	}
	for _, service := range s.World.Services {
		why := service.Why
		if !service.OK && why == "" {
			why = "not ok"
		}
		w.Services = append(w.Services, watch.Service{Name: service.Name, Why: why})
	}
	for _, f := range s.Faults {
		text := f.Name + ": " + f.Fault.String()
		if f.State != lifecycle.InForce {
			text += " (" + string(f.State) + ")"
		}
		w.Faults = append(w.Faults, text)
	}
	for _, m := range s.Machines {
		one := watch.Machine{
			Name: m.Name, State: m.State, Agent: m.Agent, Start: m.Start,
			Ready: time.Duration(m.ReadySeconds * float64(time.Second)),
		}
		for _, at := range m.Addresses {
			one.Addresses = append(one.Addresses, watch.Address{Segment: at.Segment, IPv4: at.IPv4, IPv6: at.IPv6})
		}
		if l, known := used[m.Name]; known {
			one.Used = &watch.Used{
				CPU: time.Duration(l.CPUSeconds * float64(time.Second)), Resident: l.ResidentBytes,
				Read: l.ReadBytes, Written: l.WrittenBytes,
			}
		}
		w.Machines = append(w.Machines, one)
	}
	return w
}

// report prints what changes, until ctx ends or, if it may end, nothing is left.
func (a *app) report(ctx context.Context, now watch.Look, look look, every time.Duration, asJSON, ends bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := watch.Look{}
	lines := json.NewEncoder(a.Out)
	lines.SetEscapeHTML(false)
	for {
		for _, change := range watch.Changes(before, now) {
			var err error
			if asJSON {
				err = lines.Encode(change)
			} else {
				_, err = fmt.Fprintln(a.Out, change)
			}
			if err != nil {
				return fmt.Errorf("print a change: %w", err)
			}
		}
		if ends && len(now.Scenes) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return status(cli.Interrupted)
		case <-tick.C:
		}
		before = now
		var err error
		if now, err = look(ctx); err != nil {
			if ctx.Err() != nil {
				return status(cli.Interrupted)
			}
			return err
		}
	}
}

// screen shows looks on the terminal until somebody leaves.
func (a *app) screen(ctx context.Context, now watch.Look, look look, every time.Duration) error {
	// Looks end with the screen, whatever ends it; and signals that would end the
	// program at once would leave the terminal as it is.
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer cancel()
	again := func() tea.Msg {
		l, err := look(ctx)
		return looked{l, err}
	}
	model := watching{look: again, every: every, now: now, width: 80, height: 24}
	program := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(a.In), tea.WithOutput(a.Out))
	ended, err := program.Run()
	switch {
	case errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil:
		return status(cli.Interrupted)
	case err != nil:
		return fmt.Errorf("watch: %w", err)
	}
	return ended.(watching).failed
}

// watching is the screen: a model that bubbletea runs.
type watching struct {
	look          tea.Cmd // gives a looked
	every         time.Duration
	before, now   watch.Look
	width, height int
	top           int
	failed        error
}

// looked is what came of a look.
type looked struct {
	look watch.Look
	err  error
}

// due says that it is time to look.
type due struct{}

func (w watching) wait() tea.Cmd {
	return tea.Tick(w.every, func(time.Time) tea.Msg { return due{} })
}

// Init is tea.Model's.
func (w watching) Init() tea.Cmd { return w.wait() }

// Update is tea.Model's.
func (w watching) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		w.width, w.height = msg.Width, msg.Height
	case due:
		return w, w.look
	case looked:
		if msg.err != nil {
			w.failed = msg.err
			return w, tea.Quit
		}
		w.before, w.now = w.now, msg.look
		return w, w.wait()
	case tea.KeyPressMsg:
		return w.key(msg.String())
	}
	w.top = watch.Top(w.lines(), w.top, w.height)
	return w, nil
}

func (w watching) key(key string) (tea.Model, tea.Cmd) {
	page := max(1, w.height-2)
	switch key {
	case "q", "esc", "ctrl+d":
		return w, tea.Quit
	case "ctrl+c":
		return w, tea.Interrupt
	case "up", "k":
		w.top--
	case "down", "j":
		w.top++
	case "pgup", "b":
		w.top -= page
	case "pgdown", "space":
		w.top += page
	case "home", "g":
		w.top = 0
	case "end", "G":
		w.top = len(w.lines())
	}
	w.top = watch.Top(w.lines(), w.top, w.height)
	return w, nil
}

func (w watching) lines() []string { return watch.Lines(w.before, w.now, w.width) }

// View is tea.Model's.
func (w watching) View() tea.View {
	v := tea.NewView(watch.Screen(w.lines(), w.top, w.width, w.height, w.now.At))
	v.AltScreen = true
	return v
}
