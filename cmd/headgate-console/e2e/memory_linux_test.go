package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// atOnce is how many imports a test sends at the same time.
const atOnce = 8

// A text of 1 MiB takes some 500 MB to read, and eight of them at once more than 4 GB. Other
// imports wait for the one that is read, and a user without a role has nothing read.
func TestImportsTakeBoundedMemory(t *testing.T) {
	t.Setenv("GOGC", "100") // the console's, as it runs with nothing set

	console, _ := build(t)
	d := engines()[0].open(t).prepare()
	stranger := d.stranger()
	p := d.serve(console)

	body := "policies:\n" + strings.Repeat("- a: [b,b,b,b,b,b,b,b]\n", 45_000)
	before := p.memory("VmRSS")
	p.import8(stranger, body, http.StatusForbidden)
	if got := p.memory("VmHWM") - before; got > 64<<10 {
		t.Errorf("a user without a role makes the console take %d kB more", got)
	}

	// On a slow machine some wait in vain.
	p.import8(d.token, body, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	if got := p.memory("VmHWM"); got > 1<<20 {
		t.Errorf("%d imports at once make the console take %d kB", atOnce, got)
	}
}

// stranger returns a token of a user without a role.
func (d *database) stranger() (token string) {
	d.t.Helper()
	d.with(func(ctx context.Context, s *service.Service, _ string) {
		must := func(err error) {
			if err != nil {
				d.t.Fatal(err)
			}
		}
		signIn := func(name, password string) service.Actor {
			session, err := s.Login(ctx, name, password, service.Meta{})
			must(err)
			a, err := s.Authenticate(ctx, session.Token, service.Meta{})
			must(err)
			return a
		}

		first, err := s.CreateUser(ctx, signIn(service.FirstUser, password), "stranger")
		must(err)
		_, err = s.ChangePassword(ctx, signIn("stranger", first), first, password)
		must(err)
		_, token, err = s.CreateToken(ctx, signIn("stranger", password),
			service.TokenDraft{Label: "x", Scope: service.Write, Life: time.Hour})
		must(err)
	})
	return token
}

// import8 asks for the plans of eight imports at the same time.
func (p *program) import8(token, body string, want ...int) {
	p.t.Helper()
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost,
				"http://"+p.address+"/api/import/plan", strings.NewReader(body))
			if err != nil {
				p.t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/yaml")

			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				p.t.Error(err)
				return
			}
			defer answer.Body.Close()
			io.Copy(io.Discard, answer.Body)
			if !slices.Contains(want, answer.StatusCode) {
				p.t.Errorf("an import was answered %d, want one of %d", answer.StatusCode, want)
			}
		})
	}
	all.Wait()
}

// memory returns a figure of the process in kB: VmRSS is what it has, VmHWM the most it ever had.
func (p *program) memory(figure string) int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := strconv.Atoi(regexp.MustCompile(figure + `:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}
