package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	w, b := asAdmin(t)
	host := strings.TrimPrefix(w.url, "http://")
	// All combinations, as browsers send either of the two headers, or both, or none.
	for _, site := range []string{"", "same-origin", "none", "same-site", "cross-site", "nonsense"} {
		for _, origin := range []string{"", w.url, "https://evil.example", "null", "http://sub." + host} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
				r, err := http.NewRequestWithContext(t.Context(), method, w.url+"/apps",
					strings.NewReader(url.Values{"name": {"a"}}.Encode()))
				if err != nil {
					t.Fatal(err)
				}

				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if site != "" {
					r.Header.Set("Sec-Fetch-Site", site)
				}
				if origin != "" {
					r.Header.Set("Origin", origin)
				}

				// The sum of the rules is in fetchStatus, which says what each combination means.
				if got, want := b.do(r).status, fetchStatus(w, site, origin, method); got != want {
					t.Errorf("%s with Sec-Fetch-Site %q and Origin %q: the status is %d and not %d", method, site,
						origin, got, want)
				}
			}
		}
	}
}

// fetchStatus returns the status of a request that adds an existing application. 422
// comes from the form, so the request was not refused.
func fetchStatus(w *world, site, origin, method string) int {
	if method == "GET" {
		return http.StatusOK
	}
	own := site == "same-origin" || site == "none" || site == "" && (origin == "" || origin == w.url)
	switch {
	case !own:
		return http.StatusForbidden
	case method == "POST":
		return http.StatusUnprocessableEntity
	}
	return http.StatusMethodNotAllowed
}

func TestGetChangesNothing(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	// All forms are sent, but with their values in the address, from where nothing may be read.
	for _, r := range routes {
		path, isPost := strings.CutPrefix(r.pattern, "POST ")
		if !isPost || path == "/login" || path == "/logout" || strings.HasPrefix(path, "/account/password") {
			continue
		}

		path = strings.ReplaceAll(path, "{name}", "p")
		b.post(path+"?name=q&do=disable&version=1&mode=off&base=1&app=a&role=owner&idle=1h&life=2h&confirm=yes&policy=p",
			nil)
	}

	p, err := w.Policy(t.Context(), w.admin, "p")
	if err != nil || p.Version != 1 {
		t.Errorf("the policy is %v, %v", p, err)
	}

	if apps, err := w.Apps(t.Context(), w.admin); len(apps) != 2 || err != nil {
		t.Errorf("the applications are %v, %v", apps, err)
	}

	if users, err := w.Users(t.Context(), w.admin); len(users) != 1 || err != nil {
		t.Errorf("the users are %v, %v", users, err)
	}
}

func TestCookieIsForThisHostOnly(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	got := b.post("/login", url.Values{"name": {"admin"}, "password": {password}, "next": {"/keys?app=a"}}).
		goes("/keys?app=a")

	cookie := got.header.Get("Set-Cookie")
	for _, want := range []string{"headgate=", "Path=/", "HttpOnly", "SameSite=Lax", "Expires="} {
		if !strings.Contains(cookie, want) {
			t.Errorf("%q is not in %q", want, cookie)
		}
	}

	// Tests use plain HTTP, where a browser would not accept a cookie that is Secure.
	if strings.Contains(cookie, "Secure") || strings.Contains(cookie, "Domain") {
		t.Errorf("the cookie of plain HTTP is %q", cookie)
	}

	if got := (Options{Secure: true}).Cookie(); got != "__Host-headgate" {
		t.Errorf("the name with TLS is %q", got)
	}

	b.post("/logout", nil).goes("/login?done=out")
	b.get("/policies").goes("/login?next=%2Fpolicies")
}

func TestLoginRedirectsToThisSiteOnly(t *testing.T) {
	// Browsers read backslashes, tabs and several slashes as the beginning of a host. The longest
	// address is kept, and that of one byte more is not.
	search := "/policies?search="
	longest := search + strings.Repeat("x", maxNext-len(search))
	for _, next := range []string{"", "https://evil.example/", "//evil.example", `/\evil.example`, `\\evil.example`,
		"javascript:alert(1)", "evil", "/\t/evil.example", "http:evil", "///evil.example",
		longest + "x"} {
		if got := local(next); got != "/" {
			t.Errorf("%q leads to %q", next, got)
		}
	}

	if local(longest) != longest {
		t.Error("a page of this site with a long search is lost")
	}

	if got := local("/policies/x?done=saved#y"); got != "/policies/x?done=saved" {
		t.Errorf("a page of this site becomes %q", got)
	}
}

func TestHeadersGuardEveryAnswer(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	for _, r := range routes {
		// The drawing and the export are files, with headers of their own.
		path, isGet := strings.CutPrefix(r.pattern, "GET ")
		if !isGet || path == "/drawing.svg" || path == "/export" {
			continue
		}

		path = strings.NewReplacer("{name}", "p", "{$}", "").Replace(path)
		if strings.HasPrefix(path, "/users/") {
			path = "/users/admin"
		}

		got := b.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": contentPolicy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := got.header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}

		got.inline(path)
	}
}

// inline checks that the page has nothing that its content security policy forbids.
func (a *answer) inline(path string) {
	a.t.Helper()
	for kind := range a.shape() {
		element, name, _ := strings.Cut(kind, " ")
		if element == "style" || name == "style" || strings.HasPrefix(name, "on") {
			a.t.Errorf("%s: there is a %q", path, kind)
		}
	}
	scripts := strings.Count(a.text, "<script")
	if own := strings.Count(a.text, `<script src="/static/live.js" defer></script>`); scripts != own {
		a.t.Errorf("%s: %d scripts are not the one", path, scripts-own)
	}
}
