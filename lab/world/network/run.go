package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// packages are those of Debian that bring the programs that run runs.
var packages = map[string]string{"nft": "nftables", "conntrack": "conntrack"}

// run runs a program in the namespace that this thread is in, and gives what it
// answers.
func run(ctx context.Context, program, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var answer, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &answer, &said
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the program %s is missing; install the package %s", program, packages[program])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %s; `lab verify` shows what this machine's kernel cannot do",
			program, err, strings.TrimSpace(said.String()))
	}
	return answer.Bytes(), nil
}
