package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// account has the administrator look at sessions and at the tokens of a user, and back up.
func (j *journey) account() {
	b := j.tab

	// Another browser, of a long name, signs in.
	j.signInElsewhere("admin", password, strings.Repeat("Mozilla/5.0 (X11; Linux x86_64) ", 6))
	b.navigate(j.url("/account"))
	const ends = `[...document.querySelectorAll('[action="/account/sessions/end"] button')]`
	if n := eval[float64](b, ends+`.length`); n < 1 {
		j.t.Fatalf("there are %g other sessions", n)
	}
	if h := eval[float64](b, `Math.max(...`+ends+`.map((e) => e.getBoundingClientRect().height))`); h > 50 {
		j.t.Errorf("a button End is %g pixels high, which are several lines", h)
	}
	j.fits(b)

	b.navigate(j.url("/users/admin"))
	b.reads("No program acts in the name of this user.")
	j.fits(b)

	b.navigate(j.url("/settings"))
	j.fits(b)
	b.fill("Password", password)
	name, backup := b.download("Download a backup")
	if !strings.HasPrefix(name, "headgate-console-") {
		j.t.Errorf("the backup is called %q", name)
	}
	dir := j.t.TempDir()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(backup), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if err := store.Restore(j.t.Context(), "sqlite://"+filepath.Join(dir, "console.db"), file, false); err != nil {
		j.t.Errorf("the backup is not restored: %v", err)
	}
}

// signInElsewhere signs a user in by another client.
func (j *journey) signInElsewhere(name, password, agent string) {
	j.t.Helper()
	form := url.Values{"name": {name}, "password": {password}}
	body := strings.NewReader(form.Encode())
	r, err := http.NewRequestWithContext(j.t.Context(), http.MethodPost, j.url("/login"), body)
	if err != nil {
		j.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("User-Agent", agent)

	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		j.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusSeeOther {
		j.t.Fatalf("the sign-in was answered %d", answer.StatusCode)
	}
}
