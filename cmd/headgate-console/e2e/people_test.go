package e2e

import (
	"encoding/csv"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pquerna/otp/totp"
)

// phone has the second factor of a user.
type phone struct {
	j      *journey
	secret string
	at     time.Time // of the last code
}

// code returns a code that was not used. The console accepts that of the next step too, so
// that two in a row take no time.
func (d *phone) code() string {
	d.j.t.Helper()
	at := time.Now()
	if next := d.at.Truncate(30 * time.Second).Add(30 * time.Second); at.Before(next) {
		at = next
	}
	d.at = at
	code, err := totp.GenerateCode(d.secret, at)
	if err != nil {
		d.j.t.Fatal(err)
	}
	return code
}

// enrol sets up a second factor on its page, and returns the device and the recovery codes.
func (j *journey) enrol(b *tab, password string) (*phone, []string) {
	b.fill("Password", password)
	b.press("Set it up")
	j.fits(b)

	d := &phone{j: j,
		secret: strings.ReplaceAll(eval[string](b, `document.querySelector("#secret").textContent`), " ", "")}
	if w := eval[float64](b, `document.querySelector("svg.qr").getBoundingClientRect().width`); w < 100 {
		j.t.Errorf("the picture of the secret is %g pixels wide", w)
	}

	b.fill("Code that the app shows", d.code())
	b.press("Turn it on")
	j.fits(b)

	// The codes are shown this once, so they are kept here.
	codes := eval[[]string](b, `[...document.querySelectorAll(".codes code")].map((c) => c.textContent)`)
	if len(codes) != 10 {
		j.t.Errorf("the recovery codes are %q", codes)
	}

	b.press("I have kept them")
	return d, codes
}

// enter signs in as far as the password goes.
func (j *journey) enter(b *tab, name, password string) {
	b.navigate(j.url("/login"))
	b.fill("Name", name)
	b.fill("Password", password)
	b.press("Sign in")
}

// secondFactors has the administrator set up a second factor, require it of everyone, and
// sign in with codes.
func (j *journey) secondFactors() {
	b := j.tab
	b.pick("Account")
	b.press("Set up a second factor")
	device, recovery := j.enrol(b, password)
	b.reads("10 recovery codes were not used")

	// A requirement that is set while the administrator has a factor does not lock her out.
	b.turnTo("Settings", "Sign-in and backup")
	b.choose("A second factor is required of", "everyone")
	b.press("Save")
	b.reads("The settings were saved.")

	b.turnTo("Settings", "Users")
	b.fill("Name", "ada")
	b.press("Add the user")
	first := eval[string](b, `document.querySelector(".secret code").textContent`)

	b.signOut()
	j.enter(b, "admin", password)

	b.reads("Second factor")
	j.fits(b)
	b.navigate(j.url("/policies"))
	b.reads("Sign in") // the password is not enough

	j.enter(b, "admin", password)
	b.fill("Code", "000000")
	if status := b.press("Sign in"); status != http.StatusUnauthorized {
		j.t.Errorf("a wrong code has status %d, want %d", status, http.StatusUnauthorized)
	}
	b.refusedWith(http.StatusUnauthorized)

	// A code works once, also within the half minute in which it is right.
	code := device.code()
	b.fill("Code", code)
	b.press("Sign in")
	b.press("Policies")
	b.signOut()

	j.enter(b, "admin", password)
	b.fill("Code", code) // which was used
	b.press("Sign in")
	b.reads("was used before")
	b.refusedWith(http.StatusUnauthorized)

	// A recovery code stands in for the device.
	b.fill("Code", recovery[0])
	b.press("Sign in")
	b.reads("9 recovery codes were not used")

	b.turnTo("Activity", "Audit log")
	b.fill("Who", "admin")
	b.fill("What", "session.")
	b.press("Show")
	b.reads("session.password", "with a code", "with a recovery code; 9 are left", "session.logout")

	b.fill("Who", "")
	b.choose("Outcome", "refused")
	b.press("Show")
	b.reads("session.code", "the code was used before")

	b.signOut()
	j.newcomer(b, first)
	j.enter(b, "admin", password)

	b.fill("Code", recovery[1])
	b.press("Sign in")
	b.navigate(j.url("/users/ada"))
	b.press("Remove the second factor")
	b.reads("All sessions of ada end")
	b.press("Remove the second factor")
	b.reads("The second factor was removed")

	j.thinkTwice()
	b.turnTo("Settings", "Sign-in and backup")
	b.choose("A second factor is required of", "nobody")
	b.press("Save")

	b.navigate(j.url("/account/second-factor"))
	b.fill("Password to turn it off", password)
	b.fill("Code of now, or a recovery code", recovery[2])
	b.press("Turn the second factor off")
	b.reads("The second factor was turned off.")
}

// thinkTwice begins changes of users that cannot simply be taken back, and reads what they would
// do.
func (j *journey) thinkTwice() {
	b := j.tab
	for _, c := range []struct{ user, button, title, consequence string }{
		{"ada", "Make an administrator", "Make ada an administrator?", "can also take these permissions away from you"},
		{"admin", "Make an ordinary user", "Give up being an administrator?",
			"Only another administrator can take this back."},
		{"admin", "Disable", "Disable yourself?", "All your sessions end at once, this one included"},
		{"ada", "Give a new one-time password", "Give ada a new one-time password?",
			"The password of ada stops working"},
	} {
		b.navigate(j.url("/users/" + c.user))
		b.press(c.button)
		b.reads(c.title, c.consequence)
		j.fits(b)
		b.press("Leave it as it is")
	}

	// Each was left as it is, so ada and admin are what they were.
	b.reads("A user with the roles below.")
	b.navigate(j.url("/users/admin"))
	b.reads("administrator manages users and applications")
}

// newcomer signs in with a one-time password, chooses another, and is led to the second factor
// before anything else.
func (j *journey) newcomer(b *tab, oneTime string) {
	const chosen = "purple otters under bridges"
	j.enter(b, "ada", oneTime)

	// A password of one letter passes the length and nothing else.
	const easy = "aaaaaaaaaaaa"
	b.fill("One-time password", oneTime)
	b.fill("New password", easy)
	b.fill("New password again", easy)
	if status := b.press("Change the password"); status != http.StatusUnprocessableEntity {
		j.t.Errorf("the password %s has status %d", easy, status)
	}
	b.reads("it is easy to guess")
	b.refusedWith(http.StatusUnprocessableEntity)

	b.fill("One-time password", oneTime)
	b.fill("New password", chosen)
	b.fill("New password again", chosen)
	b.press("Change the password")

	// Every page leads to the second factor until there is one.
	b.reads("requires a second factor of you")
	b.navigate(j.url("/policies"))
	b.reads("requires a second factor of you")
	j.fits(b)

	j.enrol(b, chosen)
	b.press("Policies")
	b.pick("Account")
	j.endsSoon(b)
	b.signOut()
}

// endsSoon makes a token whose last day is in five days, and sees the warning.
func (j *journey) endsSoon(b *tab) {
	b.fill("What it is for", "deploy")
	last := time.Now().UTC().AddDate(0, 0, 5)
	b.date("Or its last day is", last)
	b.press("Make the token")
	b.press("I have copied it")
	b.reads("Tokens end soon", "deploy ends ")
	if got, want := eval[string](b, `document.querySelector("[role=status] time").dateTime`), last.AddDate(0, 0, 1).Format(time.DateOnly)+"T00:00:00Z"; got != want {
		j.t.Errorf("the token ends %s, want %s", got, want)
	}
	j.fits(b)
}

// tokens makes a token for 30 days, has a program write policies with it, and revokes it.
func (j *journey) tokens() {
	b := j.tab

	j.addAppCalled("till")
	b.pick("Account")
	b.fill("What it is for", "policies in Git")
	b.choose("It may", "read and write")
	b.choose("It ends after", "30 days")
	b.tick("till")

	// The console takes its own instant, between the press and the page that shows the token.
	earliest := time.Now().UTC().AddDate(0, 0, 30).Truncate(time.Second)
	b.press("Make the token")
	b.reads("Your new token", "It is shown only once. Copy it now.")
	token := eval[string](b, `document.querySelector(".secret code").textContent`)
	b.press("I have copied it")

	b.reads("policies in Git write till never")
	ends, err := time.Parse(time.RFC3339, eval[string](b, `document.querySelector("[data-head=Ends] time").dateTime`))
	if err != nil || ends.Before(earliest) || ends.After(time.Now().UTC().AddDate(0, 0, 30)) {
		j.t.Errorf("the token of 30 days, made at %s, ends %s: %v", earliest.AddDate(0, 0, -30), ends, err)
	}

	j.apply(token)
	b.press("Policies")
	b.press("refunds")
	b.reads("7/1m")
	b.press("All versions")
	b.reads("import by admin", "from Git")

	b.pick("Account")
	b.press("Revoke policies in Git")
	b.reads("Revoke the token policies in Git?", "Programs that use it get a 401 from now on.")
	j.fits(b)
	b.press("Revoke the token")
	b.reads("The token was revoked.", "revoked")

	// The program learns it at its next command.
	if code, out := j.command(token, "diff"); code != 2 || !strings.Contains(out, "the token is not known") {
		j.t.Errorf("with a token that was revoked diff ends with %d: %s", code, out)
	}
}

// apply has the console's command show and make a change by a file.
func (j *journey) apply(token string) {
	j.t.Helper()
	for _, c := range []struct {
		command []string
		code    int
		out     string
	}{
		{[]string{"diff"}, 1, "create refunds"},
		{[]string{"apply", "-comment", "from Git"}, 0, "created    refunds"},
		{[]string{"diff"}, 0, ""},
	} {
		if code, out := j.command(token, c.command...); code != c.code || !strings.Contains(out, c.out) ||
			c.out == "" && out != "" {
			j.t.Errorf("%s ends with %d, want %d: %s", c.command, code, c.code, out)
		}
	}
}

// command runs a command of the console with a file of one policy, and returns its exit code and
// what it printed.
func (j *journey) command(token string, command ...string) (code int, out string) {
	j.t.Helper()
	file := filepath.Join(j.t.TempDir(), "till.yaml")
	text := "policies:\n- {name: refunds, apps: [till], limit: 7/1m, key: ip}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
	c := exec.Command(j.binary, append(command, "-f", file, "-url", "http://"+j.console.address)...)
	c.Env = append(os.Environ(), "HEADGATE_CONSOLE_TOKEN="+token)
	printed, _ := c.CombinedOutput()
	return c.ProcessState.ExitCode(), string(printed)
}

// audit filters the audit log by its form, and exports what the filter selects.
func (j *journey) audit() {
	b := j.tab

	b.turnTo("Activity", "Audit log")
	b.fill("Who", "admin")
	b.fill("What", "token.")
	b.date("From", time.Now().UTC().AddDate(0, 0, -1))
	b.press("Show")
	want := []string{"admin token.revoke done", "admin token.create done"}

	// The newest is first.
	if got := eval[[]string](b, `[...document.querySelectorAll("tbody tr")].map((row) => [1, 2, 4].map((i) => row.children[i].childNodes[0].textContent.trim() || row.children[i].innerText.trim()).join(" "))`); !slices.Equal(got, want) {
		j.t.Errorf("the log has %q, want %q", got, want)
	}

	name, text := b.download("Export as CSV")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || name != "audit.csv" || len(rows) != 3 {
		j.t.Fatalf("%s: %v\n%s", name, err, text)
	}

	head := "id at actor via action object outcome before after request_id address note"
	if got := strings.Join(rows[0], " "); got != head {
		j.t.Errorf("the head of the file is %s", got)
	}
	for i, row := range rows[1:] {
		if got := row[2] + " " + row[4] + " " + row[6]; got != want[i] {
			j.t.Errorf("row %d of the file is %s, want %s", i+1, got, want[i])
		}
	}

	b.fill("What", "policy.")
	b.fill("On what", "policy:refunds")
	b.press("Show")
	b.unfold("Before and after")
	b.reads(`policy.import policy:refunds done from Git`,
		`{"name":"refunds","apps":["till"],"limit":"7/1m","key":"ip"}`)

	// The export itself is in the log, and so are look-ups of keys.
	b.press("Show all")
	b.reads("audit.export")
	b.fill("What", "key.")
	b.press("Show")
	b.reads("key.look-up policy:visitors done")

	b.fill("What", "traffic.")
	b.press("Show")
	b.reads("traffic.export")
}
