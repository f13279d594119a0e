package readme

import (
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The commands of the workflow are run by a test of the console. Here is what a run of them
// does not show: a pull request, whose author may change the workflow, gets no token that writes.
func TestPoliciesWorkflow(t *testing.T) {
	text := read(t, "examples/policies/workflow.yml")
	// The page shows the whole file, which readers copy.
	if !strings.Contains(read(t, "docs/console.md"), "```yaml\n"+text+"```\n") {
		t.Error("docs/console.md shows another workflow")
	}

	var w struct {
		Name string
		On   struct {
			PullRequest struct{ Paths []string } `yaml:"pull_request"`
			Push        struct{ Branches, Paths []string }
		}
		Permissions map[string]string
		Concurrency string
		Env         map[string]string
		Jobs        struct{ Diff, Apply workflowJob }
	}
	if err := yaml.UnmarshalWithOptions([]byte(text), &w, yaml.Strict()); err != nil {
		t.Fatal(err)
	}

	// Both events look at the same files. The token of the job itself may only read.
	if !slices.Equal(w.On.PullRequest.Paths, w.On.Push.Paths) || !slices.Equal(w.On.Push.Branches, []string{"main"}) ||
		w.Permissions["contents"] != "read" || len(w.Permissions) != 1 {
		t.Errorf("%+v", w)
	}

	// A token would be readable on the way otherwise.
	if !strings.HasPrefix(w.Env["HEADGATE_CONSOLE_URL"], "https://") {
		t.Errorf("the URL is %q", w.Env["HEADGATE_CONSOLE_URL"])
	}

	// Each secret occurs once, at the one job that needs it: that of a pull request may only read.
	for _, row := range []struct {
		job            workflowJob
		event, command string
		token          string
	}{
		{w.Jobs.Diff, "pull_request", "headgate-console diff ", "${{ secrets.HEADGATE_READ_TOKEN }}"},
		{w.Jobs.Apply, "push", "headgate-console apply ", "${{ secrets.HEADGATE_WRITE_TOKEN }}"},
	} {
		last := row.job.Steps[len(row.job.Steps)-1]
		if row.job.If != "github.event_name == '"+row.event+"'" || !strings.HasPrefix(last.Run, row.command) ||
			last.Env["HEADGATE_CONSOLE_TOKEN"] != row.token || strings.Count(text, row.token) != 1 {
			t.Errorf("at %s: %+v", row.event, row.job)
		}
		row.job.wantPins(t)
	}
}

// workflowJob is a job of a workflow.
type workflowJob struct {
	If, Environment string
	RunsOn          string `yaml:"runs-on"`
	Steps           []struct {
		Uses, Run string
		With      map[string]any
		Env       map[string]string
	}
}

// wantPins checks that each action is pinned to a commit.
func (j workflowJob) wantPins(t *testing.T) {
	t.Helper()
	for _, step := range j.Steps {
		if _, pin, _ := strings.Cut(step.Uses, "@"); step.Uses != "" && len(pin) != 40 {
			t.Errorf("%q is not pinned to a commit", step.Uses)
		}
	}
}
