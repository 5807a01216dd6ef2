package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"mesh/lab/watch"
)

// pressed gives the model after keys, and what the last one asked for.
func pressed(t *testing.T, w watching, keys ...tea.Key) (watching, tea.Msg) {
	t.Helper()
	var then tea.Cmd
	for _, key := range keys {
		next, cmd := w.Update(tea.KeyPressMsg(key))
		w, then = next.(watching), cmd
	}
	if then == nil {
		return w, nil
	}
	return w, then()
}

// tall is a screen of 10 lines for more than that.
func tall() watching {
	var s watch.Scene
	for i := range 30 {
		s.Machines = append(s.Machines, watch.Machine{Name: fmt.Sprintf("m%d", i)})
	}
	return watching{now: watch.Look{Scenes: []watch.Scene{s}}, width: 80, height: 10}
}

func TestWatchingKeys(t *testing.T) {
	down, up, page := tea.Key{Code: tea.KeyDown}, tea.Key{Code: tea.KeyUp}, tea.Key{Code: tea.KeyPgDown}
	end, home := tea.Key{Code: tea.KeyEnd}, tea.Key{Code: tea.KeyHome}
	last := len(tall().lines()) - 9
	for name, c := range map[string]struct {
		keys []tea.Key
		top  int
	}{
		"none":       {nil, 0},
		"down":       {[]tea.Key{down, down}, 2},
		"not above":  {[]tea.Key{up}, 0},
		"page":       {[]tea.Key{page, up}, 7},
		"end":        {[]tea.Key{end}, last},
		"not beyond": {[]tea.Key{end, down, page}, last},
		"home":       {[]tea.Key{end, home}, 0},
	} {
		if w, _ := pressed(t, tall(), c.keys...); w.top != c.top {
			t.Errorf("%s: from line %d on, want %d", name, w.top, c.top)
		}
	}
}

func TestWatchingLeaves(t *testing.T) {
	if _, msg := pressed(t, tall(), tea.Key{Code: 'q', Text: "q"}); msg != tea.Quit() {
		t.Errorf("q: %v", msg)
	}
	if _, msg := pressed(t, tall(), tea.Key{Code: 'c', Mod: tea.ModCtrl}); msg != tea.Interrupt() {
		t.Errorf("ctrl+c: %v", msg)
	}
	next, then := tall().Update(looked{err: errors.New("the store is gone")})
	if then == nil || then() != tea.Quit() || next.(watching).failed == nil {
		t.Error("a look that failed does not end it")
	}
}

// TestWatchingResizes: a screen that became larger has no empty lines below.
func TestWatchingResizes(t *testing.T) {
	w, _ := pressed(t, tall(), tea.Key{Code: tea.KeyEnd})
	next, _ := w.Update(tea.WindowSizeMsg{Width: 40, Height: 20})
	content := next.View().Content
	if n := strings.Count(content, "\n") + 1; n != 20 {
		t.Errorf("%d lines on a terminal of 20", n)
	}
	if !strings.Contains(content, "m29") || strings.Contains(content, "\n\n\n") {
		t.Errorf("it does not fill the screen:\n%s", content)
	}
}
