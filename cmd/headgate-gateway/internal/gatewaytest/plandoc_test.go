//go:build linux

package gatewaytest

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/freeport"
)

// planPage is what the last step of docs/plan.md has.
type planPage struct {
	limits    string // the file of the policies
	program   string // the service in Go
	arguments string // of the gateway
	metrics   string // of policies in shadow
}

func readPlanPage(t *testing.T) (p planPage) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}

	for expression, to := range map[string]*string{
		"(?s)`limits.yaml`:\n\n```yaml\n(.*?)```":            &p.limits,
		"(?s)```go\n(.*?)```":                                &p.program,
		"\n    headgate-gateway (.*)\n":                      &p.arguments,
		"(?s)grep shadow_refused\n```\n\n(.*?)\n\n":          &p.metrics,
		"(?s)uniq -c\n```\n\n( +30 200\n +1 429)\n":          new(string),
		"(for i in \\$\\(seq 31\\); do curl .*:8089/; done)": new(string),
	} {
		found := regexp.MustCompile(expression).FindSubmatch(page)
		if found == nil {
			t.Fatalf("the page has nothing of the form %s", expression)
		}
		*to = string(found[1])
	}
	return p
}

// The policy that docs/plan.md ends with is in force before a service and in one, and refuses as
// many requests as the page says.
func TestThePlanOfThePageIsEnforced(t *testing.T) {
	page, service := readPlanPage(t), Serve(t)

	// The ports of the page may be in use.
	gateway := func(limits string) (addr, admin string) {
		addr, admin = freeport.Addr(t), freeport.Addr(t)
		arguments := strings.NewReplacer("127.0.0.1:3000", service.Addr, "127.0.0.1:8090", admin, "limits.yaml",
			written(t, "limits.yaml", limits)).Replace(page.arguments)
		Run(t, Answers("http://"+admin+"/readyz", 200), Program(t),
			append(strings.Fields(arguments), "-listen", addr)...)
		return addr, admin
	}

	addr, _ := gateway(page.limits)
	answered(t, "the gateway", addr, map[int]int{200: 30, 429: 1})

	// In shadow all pass, and are counted.
	addr, admin := gateway(page.limits + "  mode: shadow\n")
	answered(t, "the gateway in shadow", addr, map[int]int{200: 31})
	metrics := Do(t, Client(t, "127.0.0.1"), "GET", "http://"+admin+"/metrics", nil).Body
	for line := range strings.Lines(page.metrics) {
		if line = strings.TrimSpace(line); !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}

	// The service is built as a program of the root module.
	addr = freeport.Addr(t)
	main := written(t, "main.go", strings.NewReplacer("127.0.0.1:8080", addr, "limits.yaml",
		written(t, "limits.yaml", page.limits)).Replace(page.program))
	build := exec.Command("go", "build", "-o", main+".out", main)
	build.Dir = "../../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	Run(t, Accepts(addr), main+".out")
	answered(t, "the service", addr, map[int]int{200: 30, 429: 1})
}

// written writes a file of the test, and returns its path.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answered sends 31 requests, one after the other, and compares how many have which status.
func answered(t *testing.T, what, addr string, want map[int]int) {
	t.Helper()
	client, got := Client(t, "127.0.0.1"), map[int]int{}
	for range 31 {
		got[Do(t, client, "GET", "http://"+addr+"/", nil).Status]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s answers with %v, want %v", what, got, want)
	}
}
