package upstream

import (
	"net/url"
	"strings"
	"testing"
)

func TestEveryKindOfWrongAddressIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "does not begin",
		"127.0.0.1:80":         "",
		"ftp://h":              "does not begin",
		"http://":              "names no host",
		"http://u:p@h":         "user or password",
		"http://h/?q":          "more than a host",
		"http://h/#f":          "more than a host",
		"http://h:1/base":      "ok",
		"https://h":            "ok",
		"h2c://[::1]:1":        "ok",
		"http://h?":            "more than a host",
		"unix:///run/app.sock": "does not begin",
	} {
		// A text that net/url does not parse never comes to the check.
		u, err := url.Parse(text)
		if err != nil {
			continue
		}

		err = CheckAddress(u)

		// The password of an address must not stand in the mistake, which is logged.
		if want == "ok" != (err == nil) || err != nil &&
			(!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}

	if err := CheckAddress(nil); err == nil {
		t.Error("no address is no mistake")
	}
}
