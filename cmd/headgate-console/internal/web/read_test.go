package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// A period of nothing is reported beside a mistake in another field of the limit.
func TestFormReportsAPeriodThatIsNotPositive(t *testing.T) {
	_, b := asAdmin(t)
	for period, mistake := range map[string]string{"0": "0 is too small; write 1 or more",
		"-1": "-1 is too small; write 1 or more", "00": "0 is too small; write 1 or more",
		"-2147483648": "-2147483648 is too small; write 1 or more"} {
		// The quota is wrong as well, so the limit cannot be read as a whole.
		d := filled("name", "x", "apps", "a", "quota", "many", "period", period)
		got := b.post("/new", d).want(http.StatusUnprocessableEntity)

		for field, want := range map[string]string{"quota": `"many" is not a whole number`, "period": mistake} {
			if text := got.mistake(field); text != want || !got.links("#"+field) {
				t.Errorf("the period %s: beside %s is %q, want %q and a link to it", period, field, text, want)
			}
		}
	}
}

func TestFormUnitsAgreeWithTheirNumber(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "100/1m")

	// Only a period of exactly one has the unit in the singular, however it is written.
	for period, want := range map[string]string{"1": "minute", " 1 ": "minute", "2": "minutes",
		"0": "minutes", "11": "minutes", "": "minutes", "x": "minutes"} {
		got := b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"period": {period}, "do": {"preview"}}).
			want(http.StatusOK)

		var unit string
		got.each(func(n *html.Node) {
			if n.Data == "option" && attr(n, "value") == "m" {
				unit = words(n)
			}
		})

		if unit != want {
			t.Errorf("a period of %q is in %q, want %q", period, unit, want)
		}
	}
}

func TestWrongMethodIsToldFromAnUnknownPage(t *testing.T) {
	w, b := asAdmin(t)

	// The header names the methods that the address has.
	for _, row := range []struct{ method, path, allow string }{
		{"POST", "/policies", "GET, HEAD"}, {"GET", "/logout", "POST"},
		{"DELETE", "/policies/x/edit", "GET, HEAD, POST"},
		{"PUT", "/static/style.css", "GET, HEAD"}, {"PROPFIND", "/", "GET, HEAD"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), row.method, w.url+row.path, nil)
		w.must(err)
		if got := b.do(r).want(http.StatusMethodNotAllowed); got.header.Get("Allow") != row.allow {
			t.Errorf("%s %s allows %q, want %q", row.method, row.path, got.header.Get("Allow"), row.allow)
		}
	}

	// An address that is not there has no methods at all, so it is a 404.
	b.get("/none").want(http.StatusNotFound)
	b.post("/none", nil).want(http.StatusNotFound)
	b.get("/policies/x/none").want(http.StatusNotFound)
}

// An administrator of a console without applications is told what comes first.
func TestNewPolicyWithoutAnApplicationExplainsTheWay(t *testing.T) {
	w := newWorld(t)
	for _, app := range []string{"a", "b"} {
		w.must(w.DeleteApp(t.Context(), w.admin, app))
	}

	b := w.as("admin")

	// To look is no attempt at something that is forbidden.
	before := w.refusals()
	got := b.get("/new").want(http.StatusOK)
	got.has(`href="/apps"`).lacks("Not permitted")

	if w.refusals() != before {
		t.Error("the audit log has a refusal")
	}

	// One who may not add applications cannot be helped by the explanation.
	w.person("x", nil)
	w.as("x").get("/new").want(http.StatusForbidden)
}

func TestTimeOfAFormIsOneInstant(t *testing.T) {
	for _, c := range []struct{ text, zone, field, says string }{
		{"", "UTC", "at", "not a date and a time"},
		{"tomorrow", "UTC", "at", "not a date and a time"},
		{"2030-03-31T02:30", "Europe/Berlin", "at", "skip this time"},
		{"2030-10-27T02:30", "Europe/Berlin", "at", "twice"},
		{"2030-01-31T09:00", "", "zone", "not the name of a time zone"},

		// Local would be the zone of the server, and a path must not be opened as a file.
		{"2030-01-31T09:00", "Local", "zone", "not the name of a time zone"},
		{"2030-01-31T09:00", "../etc/passwd", "zone", "not the name of a time zone"},
	} {
		m := mistakes{}
		readTime(m, "at", c.text, c.zone)
		if len(m) != 1 || !strings.Contains(strings.Join(m[c.field], ""), c.says) {
			t.Errorf("%+v: %v", c, m)
		}
	}

	want := time.Date(2030, 1, 31, 3, 30, 0, 0, time.UTC)
	for _, text := range []string{"2030-01-31T09:00", "2030-01-31T09:00:00"} {
		m := mistakes{}
		if got := readTime(m, "at", text, "Asia/Kolkata"); !got.Equal(want) || len(m) > 0 {
			t.Errorf("%s is %v, %v", text, got, m)
		}
	}
}
