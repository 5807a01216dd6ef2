package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"mesh/lab/companion"
)

// start runs a program that goes into the background by itself, and does so
// only when it listens.
func (d *Daemon) start(ctx context.Context, s service) error {
	program, err := lookPath(s.program)
	if err != nil {
		return missing{fmt.Errorf("%w; install it: apt-get install --no-install-recommends %s", err, s.packs)}
	}
	if s.program == mainService.program {
		if err := d.openKVM(); err != nil {
			return fmt.Errorf("let machines use %s: %w", kvmDev, err)
		}
	}
	args := []string{"--daemon", "--pid-file", d.path(s.program + ".pid")}
	env := "LIBVIRT_LOG_OUTPUTS=3:file:" + d.path(s.program+".log") // 3: warnings and errors
	if s.program == mainService.program && d.keep != "" {
		err = d.launchKept(ctx, s, env, append([]string{"keep", "--", program}, args...))
	} else {
		err = d.launch(ctx, s, env, program, args)
	}
	if err != nil {
		return err
	}
	pid, _ := lockHolder(d.path(s.program + ".pid"))
	d.log.Info("started", "program", program, "pid", pid)
	return nil
}

// launch runs a program until it is in the background.
func (d *Daemon) launch(ctx context.Context, s service, env, program string, args []string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s (its log: %s)", program, err, bytes.TrimSpace(output.Bytes()), d.path(s.program+".log"))
	}
	return nil
}

// launchKept is launch by a process that keeps the program.
func (d *Daemon) launchKept(ctx context.Context, s service, env string, args []string) error {
	_, err := companion.Start(ctx, companion.Command{
		Exe: d.keep, Args: args, Log: d.path(s.program + ".log"), Env: []string{env},
	})
	return err
}

// lookPath finds a program also where the caller's PATH leaves out /usr/sbin.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(filepath.Join("/usr/sbin", program)); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is not installed", program)
}
