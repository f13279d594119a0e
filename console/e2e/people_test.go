package e2e

import (
	"net/http"
	"strings"
	"time"

	"github.com/pquerna/otp/totp"
)

// device is the phone of a user.
type device struct {
	j      *journey
	secret string
	at     time.Time // of the last code
}

// code returns a code that was not used. The console accepts that of the next step too, so
// that two in a row take no time.
func (d *device) code() string {
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
func (j *journey) enrol(b *tab, password string) (*device, []string) {
	b.fill("Password", password)
	b.press("Set it up")
	j.fits(b)
	d := &device{j: j, secret: strings.ReplaceAll(eval[string](b, `document.querySelector("#secret").textContent`), " ", "")}
	if w := eval[float64](b, `document.querySelector("svg.qr").getBoundingClientRect().width`); w < 100 {
		j.t.Errorf("the picture of the secret is %g pixels wide", w)
	}
	b.fill("Code that the app shows", d.code())
	b.press("Turn it on")
	j.fits(b)
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
	b.press("admin")
	b.press("Set up a second factor")
	phone, recovery := j.enrol(b, password)
	b.reads("10 recovery codes were not used")
	b.press("Settings")
	b.choose("A second factor is required of", "everyone")
	b.press("Save")
	b.reads("The settings were saved.")
	b.press("Users")
	b.fill("Name", "ada")
	b.press("Add the user")
	first := eval[string](b, `document.querySelector(".secret code").textContent`)

	b.press("Sign out")
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
	code := phone.code()
	b.fill("Code", code)
	b.press("Sign in")
	b.press("Policies")
	b.press("Sign out")
	j.enter(b, "admin", password)
	b.fill("Code", code) // which was used
	b.press("Sign in")
	b.reads("was used before")
	b.refusedWith(http.StatusUnauthorized)
	b.fill("Code", recovery[0])
	b.press("Sign in")
	b.reads("9 recovery codes were not used")
	b.navigate(j.url("/audit?action=session.&actor=admin"))
	b.reads("session.password", "with a code", "with a recovery code; 9 are left", "session.logout")
	b.navigate(j.url("/audit?action=session.&outcome=refused"))
	b.reads("session.code", "the code was used before")

	b.press("Sign out")
	j.newcomer(b, first)
	j.enter(b, "admin", password)
	b.fill("Code", recovery[1])
	b.press("Sign in")
	b.navigate(j.url("/users/ada"))
	b.press("Remove the second factor")
	b.reads("All sessions of ada end")
	b.press("Remove the second factor")
	b.reads("The second factor was removed")
	b.press("Settings")
	b.choose("A second factor is required of", "nobody")
	b.press("Save")
	b.navigate(j.url("/account/second-factor"))
	b.fill("Password to turn it off", password)
	b.press("Turn the second factor off")
	b.reads("The second factor was turned off.")
}

// newcomer signs in with a one-time password, chooses another, and is led to the second factor
// before anything else.
func (j *journey) newcomer(b *tab, oneTime string) {
	const chosen = "purple otters under bridges"
	j.enter(b, "ada", oneTime)
	b.fill("One-time password", oneTime)
	b.fill("New password", chosen)
	b.fill("New password again", chosen)
	b.press("Change the password")
	b.reads("requires a second factor of you")
	b.navigate(j.url("/policies"))
	b.reads("requires a second factor of you")
	j.fits(b)
	j.enrol(b, chosen)
	b.press("Policies")
	b.press("ada")
	j.token(b)
	b.press("Sign out")
}

// token makes a token that ends soon, and sees the warning.
func (j *journey) token(b *tab) {
	b.fill("What it is for", "deploy")
	last := time.Now().UTC().AddDate(0, 0, 5).Format(time.DateOnly)
	eval[bool](b, `document.querySelector("#until").value = "`+last+`", true`)
	b.press("Make the token")
	b.press("I have copied it")
	b.reads("Tokens end soon", "deploy")
	j.fits(b)
}
