package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

// waitForSignal is set in the process that TestSecondSignalKills starts.
const waitForSignal = "CLI_TEST_WAITS_FOR_SIGNAL"

func TestMain(m *testing.M) {
	if os.Getenv(waitForSignal) != "" {
		s := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
		os.Exit(cli.Run(program(nil), s, []string{"stubborn"}))
	}
	os.Exit(m.Run())
}

// program is a command tree with one command for each way to end.
func program(result error) *cobra.Command {
	root := &cobra.Command{
		Use: "demo", Version: "1.2.3",
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Name() == "unprepared" {
				return result
			}
			return nil
		},
	}
	unprepared := &cobra.Command{Use: "unprepared", RunE: func(*cobra.Command, []string) error { return nil }}
	image := &cobra.Command{Use: "image", Short: "Images"}
	build := &cobra.Command{
		Use:  "build NAME",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			fmt.Fprintln(c.OutOrStdout(), "built", args[0])
			return result
		},
	}
	build.Flags().Int("jobs", 1, "")
	plain := &cobra.Command{
		Use:  "plain",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return result },
	}
	plain.Flags().String("needed", "", "")
	if err := plain.MarkFlagRequired("needed"); err != nil {
		panic(err)
	}
	signalled := &cobra.Command{
		Use: "signalled",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-c.Context().Done()
			return result
		},
	}
	stubborn := &cobra.Command{
		Use: "stubborn",
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintln(c.OutOrStdout(), "ready")
			<-c.Context().Done()
			fmt.Fprintln(c.OutOrStdout(), "told")
			select {}
		},
	}
	image.AddCommand(build)
	root.AddCommand(image, plain, signalled, stubborn, unprepared)
	return root
}

type document struct{}

func (document) Error() string { return "a.yaml:1:2: wrong" }
func (document) ExitCode() int { return cli.Usage }

func TestRun(t *testing.T) {
	failed := errors.New("build image: no space")
	for _, c := range []struct {
		args   string
		result error
		code   int
		out    string // stdout begins with it
		err    string // stderr, all of it
	}{
		{args: "image build a", code: 0, out: "built a\n"},
		{args: "image build a", result: failed, code: 1, out: "built a\n", err: "demo: build image: no space\n"},
		{args: "image build a", result: fmt.Errorf("raise: %w", document{}), code: 2, out: "built a\n", err: "demo: raise: a.yaml:1:2: wrong\n"},
		{args: "image build a", result: cli.WithCode(cli.Differs, failed), code: 3, out: "built a\n", err: "demo: build image: no space\n"},
		{args: "image build a", result: cli.WithCode(cli.Prerequisite, errors.New("")), code: 4, out: "built a\n"},
		{args: "image build a", result: context.Canceled, code: 1, out: "built a\n", err: "demo: context canceled\n"},
		{args: "image build a", result: cli.WithCode(cli.Usage, nil), code: 0, out: "built a\n"},

		{args: "unprepared", result: failed, code: 1, err: "demo: build image: no space\n"},

		{args: "image build", code: 2, err: "demo: accepts 1 arg(s), received 0 (usage: demo image build NAME [flags])\n"},
		{args: "image build a --jobs many", code: 2, err: "demo: invalid argument \"many\" for \"--jobs\" flag: strconv.ParseInt: parsing \"many\": invalid syntax (see `demo image build --help`)\n"},
		{args: "image build a --job 1", code: 2, err: "demo: unknown flag: --job (see `demo image build --help`)\n"},
		{args: "plain", code: 2, err: "demo: required flag(s) \"needed\" not set (see `demo plain --help`)\n"},
		{args: "plain extra --needed=x", code: 2, err: "demo: unknown command \"extra\" for \"demo plain\" (see `demo plain --help`)\n"},
		{args: "imag", code: 2, err: "demo: unknown command \"imag\" for \"demo\"; did you mean image? (see `demo --help`)\n"},
		{args: "image biuld", code: 2, err: "demo: unknown command \"biuld\" for \"demo image\"; did you mean build? (see `demo image --help`)\n"},

		{args: "", code: 0, out: "Usage:\n  demo"},
		{args: "image", code: 0, out: "Images\n\nUsage:\n  demo image"},
		{args: "image --help", code: 0, out: "Images\n\nUsage:\n  demo image"},
		{args: "help", code: 0, out: "Usage:\n  demo"},
		{args: "help image", code: 0, out: "Images\n\nUsage:\n  demo image"},
		{args: "help image build", code: 0, out: "Usage:\n  demo image build NAME"},
		{args: "help imag", code: 2, err: "demo: unknown command \"imag\" for \"demo\"; did you mean image? (see `demo --help`)\n"},
		{args: "help image biuld", code: 2, err: "demo: unknown command \"biuld\" for \"demo image\"; did you mean build? (see `demo image --help`)\n"},
		{args: "help image build a", code: 2, err: "demo: unknown command \"a\" for \"demo image build\" (see `demo image build --help`)\n"},
		{args: "--version", code: 0, out: "demo version 1.2.3\n"},

		{args: "signalled", code: 0},
		{args: "signalled", result: failed, code: 130, err: "demo: build image: no space\n"},
		{args: "signalled", result: document{}, code: 2, err: "demo: a.yaml:1:2: wrong\n"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, narration bytes.Buffer
			s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &narration}
			if code := cli.Run(program(c.result), s, strings.Fields(c.args)); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if diff := cmp.Diff(c.err, narration.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(out.String(), c.out) || c.out == "" && out.Len() > 0 {
				t.Errorf("stdout is %q, want %q", out.String(), c.out)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 nodes": cli.Count(0, "node"), "1 node": cli.Count(1, "node"), "2 nodes": cli.Count(2, "node"),
		"1 loss": cli.Count(1, "loss"), "3 losses": cli.Count(3, "loss"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSecondSignalKills: the first signal asks, the second does not.
func TestSecondSignalKills(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), waitForSignal+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(stdout)
	for _, want := range []string{"ready", "told"} {
		if !said.Scan() || said.Text() != want {
			t.Fatalf("got %q, want %q", said.Text(), want)
		}
		if want == "ready" {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	// That a signal kills again is arranged beside the cancelling: ask until it does.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGINT) // it may be gone
		case <-ended:
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
				t.Errorf("ended by %v, want SIGINT", cmd.ProcessState)
			}
			return
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	err := cli.Table(&out, []string{"NAME", "STATE"}, [][]string{{"one", "running"}, {"seventeen", "paused"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "NAME       STATE\none        running\nseventeen  paused\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := cli.JSON(&out, map[string]any{"address": "<a&b>", "n": 1}); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"address\": \"<a&b>\",\n  \"n\": 1\n}\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
