package engine

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// Each face follows the policies by itself, and their mistakes are those of the file.
func TestPoliciesOfOtherApplicationsAreWarnedOfOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path,
		"policies:\n- {name: a, apps: [default, blog], limit: 3/1h, key: global}\n- {name: b, apps: [blog], limit: 3/1h, key: global}\n")

	var log logged
	e := open(t,
		Options{Policies: path, Apps: []string{"shopp", "blog"}, Poll: 10 * time.Millisecond, Logger: log.logger()})

	for _, app := range []string{"shopp", "blog"} {
		for _, face := range []string{"proxy", "auth", "json"} {
			limiterOf(t, e, app, Face{Name: face})
		}
	}

	const text = `level=WARN msg="headgate: no policy names this application, so nothing is limited" face=proxy code=HG018 version=`
	const attrs = ` named="blog, default" policies=2 before=0 ` +
		`see=https://github.com/headgate/headgate/blob/main/docs/findings.md#hg018 app=shopp`
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, text) ||
		!strings.Contains(got, attrs) {
		t.Errorf("logged\n%swant one warning with %s and %s", got, text, attrs)
	}

	write(t, path, "policies: []\n")
	until(t, "each application is told that its policies are gone", func() bool {
		return strings.Count(log.String(), "level=INFO") >= 12
	})

	got := log.String()
	if strings.Count(got, "level=WARN") != 3 || strings.Count(got, "all policies are gone") != 1 ||
		strings.Count(got, "there are no policies") != 1 {
		t.Errorf("logged\n%s", got)
	}
}

func TestFindingsNameTheFlagsOfTheGateway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, "policies:\n- {name: a, apps: [shop], limit: 3/1h, key: ip}\n")
	var log logged

	l := limiterOf(t, open(t, Options{Policies: path, Logger: log.logger()}), "", Face{Name: "proxy"})
	for range 3 {
		l.Admit(&test.Request{Ctx: t.Context(), Peer: "10.0.0.1:80",
			Headers: map[string][]string{"X-Forwarded-For": {"192.0.2.7"}}}).Done(200)
	}

	got := log.String()
	if strings.Count(got, "code=HG001") != 1 || !strings.Contains(got, "-trusted-proxy has to name it") ||
		strings.Contains(got, "keyfuncs") {
		t.Errorf("logged\n%s", got)
	}

	// The operator of the gateway sets flags: a finding in the words of the library would not help.
	for code, text := range wordings {
		if strings.Contains(text, "keyfuncs") {
			t.Errorf("%s: %s", code, text)
		}
	}
}
