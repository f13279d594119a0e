package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWorkflow runs the commands of the workflow in the documentation as its runner does.
func TestWorkflow(t *testing.T) {
	t.Parallel() // the test mostly waits for other programs
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { runWorkflow(t, e.open(t).prepare()) })
	}
}

func runWorkflow(t *testing.T, d *database) {
	const dir = "../../../examples/policies"
	text, err := os.ReadFile(filepath.Join(dir, "workflow.yml"))
	if err != nil {
		t.Fatal(err)
	}

	console, _ := build(t)
	p := d.serve(console)

	// The file of the documentation is run as it is: a command that is wrong there fails here.
	run := func(command, token string) (string, bool) {
		t.Helper()
		_, rest, _ := strings.Cut(string(text), "- run: headgate-console "+command)
		arguments, _, _ := strings.Cut(rest, "\n")

		sh := exec.Command("sh", "-e", "-c", "headgate-console "+command+arguments)
		sh.Dir = dir
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(console)+":"+os.Getenv("PATH"), "GITHUB_SHA=0a1b2c",
			"HEADGATE_CONSOLE_URL=http://"+p.address, "HEADGATE_CONSOLE_TOKEN="+token)
		out, err := sh.CombinedOutput()
		return string(out), err == nil
	}

	// The workflow takes the exit code of a difference for success, and no other one.
	if out, ok := run("diff", d.token); !ok || strings.Count(out, "create ") != 2 {
		t.Errorf("%v\n%s", ok, out)
	}
	if out, ok := run("diff", "hgt_unknown"); ok || !strings.Contains(out, "the token is not known") {
		t.Errorf("without a token: %v\n%s", ok, out)
	}

	if out, ok := run("apply", d.token); !ok || strings.Count(out, "created ") != 2 {
		t.Errorf("%v\n%s", ok, out)
	}
	if out, ok := run("diff", d.token); !ok || out != "" {
		t.Errorf("after apply: %v\n%s", ok, out)
	}

	p.stop(syscall.SIGTERM)
	if n := d.policies(); n != 2 {
		t.Errorf("%d policies", n)
	}
}
