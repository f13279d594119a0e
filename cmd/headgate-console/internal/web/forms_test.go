package web

import (
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

func TestFormNeedsOnlyNameAndApplication(t *testing.T) {
	w, b := asAdmin(t)

	// A new console has no policies, and its list is where people start.
	b.get("/policies").has("No policy yet.", `href="/new"`)

	// Everything that is not filled in has a value that does no harm: the policy only counts, in
	// shadow.
	b.submit("/new", "/new", url.Values{"name": {"first"}, "apps": {"a"}}).
		goes("/policies/first?done=created")

	p, err := w.Policy(t.Context(), w.admin, "first")
	if err != nil || p.Limit.String() != "100/1m" || p.Key != "ip" || p.Mode != policy.Shadow {
		t.Errorf("the policy is %+v, %v", p, err)
	}

	got := b.get("/policies/first?done=created").want(http.StatusOK)
	got.has(p.Describe(), "The policy was created.")
}

// A form that is sent without a change saves the same policy.
func TestFormRoundTrip(t *testing.T) {
	w, b := asAdmin(t)

	// Each row has something else that the form could lose or write in another way: units, dates,
	// lists, markup.
	list := append(policiesOfFiles(t), []policy.Policy{
		{Limit: limit("100/1m burst=20"), Key: "api-key", OnLimit: "wait 500ms", OnStoreError: "closed", Priority: -7},
		{Limit: limit("5/1m30s sliding-log"), Key: "user+route", Mode: policy.Shadow, Description: "two\nlines"},
		{Limit: limit("240/1h sliding-window segments=60"), Key: "ip/56",
			Match: policy.Match{Methods: []string{"POST", "PURGE"}, Host: "*.example.com", Path: "/users/{id}"}},
		{Limit: limit("10/1s fixed-window aligned"), Key: "global", OnLimit: "degrade", Mode: policy.Off},
		{Limit: limit("20 concurrent ttl=30s"), Key: "header:X-Tenant+ip", OnStoreError: "open"},
		{Limit: limit("3/1500us token-bucket burst=9"), Key: "cookie:sid", OnStoreError: "local"},
		{Limit: limit("1/400d"), Key: "ip+route"},
		{Limit: limit("10000/month tz=Europe/Berlin start=15 debt=500"), Key: "user"},
		{Limit: limit("9/year start=04-06"), Key: "user"},
		{Limit: limit("3/day"), Key: "user"},
		{Limit: limit("5/1m"), Key: "ip", Ban: core.MustParseBan("20/1m for 10m max 24h")},
		{Limit: limit("1000/1m burst=200 debt=5000"), Key: "user"},
		// Keys with quotes, spaces at the ends and line ends must survive a text area with one
		// entry a line.
		{Limit: limit("60/1h"), Key: "user", Plans: map[string]core.Limit{"pro": limit("9000/1h burst=20")},
			PlanBy: "claim",
			Access: policy.Access{Allow: policy.Callers{Networks: []string{"10.0.0.0/8", "192.0.2.7"}},
				Deny:       policy.Callers{Keys: []string{`"><script>`, " a, b ", "a\r\nb", `"a"`, "</textarea>"}},
				DenyStatus: 429}},
		{Limit: limit("9 concurrent ttl=30s"), Key: "ip",
			Access: policy.Access{Allow: policy.Callers{Networks: []string{"::1"}, Keys: []string{"192.0.2.9"}},
				Deny: policy.Callers{Networks: []string{"10.0.0.0/8"}}, DenyOthers: true}},
		{Limit: limit("9/1m"), Key: "user", Cost: policy.Cost{Units: 2}, Refund: policy.Statuses{"5xx"}, Enforce: 1250,
			Warn: 8000, Overrides: map[string]policy.Override{"acme:*": {Limit: limit("9/1h"),
				Until: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}},
			Match: policy.Match{Headers: map[string]policy.Values{"X-A": {"a", "b"}},
				Query: map[string]policy.Values{"q": {"*"}}, Claims: map[string]policy.Values{"plan": {"free"}},
				Except: []string{"/healthz"}}},
		{Limit: limit("9/1m"), Key: "ip", CountOnly: policy.Statuses{"401"},
			Cost: policy.Cost{Usage: "cost", Estimate: 1, AtMost: 2,
				Prices: map[string]policy.Price{"*": {Input: "1", Output: "2.5"}}}},
	}...)

	seen := map[string]bool{}
	for i, p := range list {
		p.Name, p.Apps = "p"+strconv.Itoa(i), []string{"a", "b"}
		w.add(p)

		page := "/policies/" + p.Name
		b.submit(page+"/edit", page+"/edit", url.Values{"do": {"save"}}).goes(page + "?done=saved")

		// A save without a change makes no version, so a second one would show what the form has
		// altered.
		if got, err := w.Policy(t.Context(), w.admin, p.Name); err != nil || got.Version != 1 {
			t.Errorf("%s: the form changed %v, %v", p.Name, service.Diff(p, got), err)
		} else {
			setFields(reflect.ValueOf(got), "", seen)
		}
	}

	// One that no policy has set could be lost unseen.
	for name, set := range seen {
		if !set {
			t.Errorf("no policy of this test sets %s", name)
		}
	}
}

// setFields notes by its path whether each field of a struct has been set, in it or before.
func setFields(v reflect.Value, path string, seen map[string]bool) {
	for i := range v.NumField() {
		field, name := v.Field(i), path+v.Type().Field(i).Name
		seen[name] = seen[name] || !field.IsZero()
		if field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[time.Time]() {
			setFields(field, name+".", seen)
		}
	}
}

// policiesOfFiles returns the policies of the repository's examples and programs.
func policiesOfFiles(t *testing.T) (list []policy.Policy) {
	root, files := "../../../..", 0
	for _, dir := range []string{"examples", "cmd", "docs", "policy"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" {
				return err
			}
			data, err := os.ReadFile(path)
			if !strings.Contains(string(data), "\npolicies:") && !strings.HasPrefix(string(data), "policies:") {
				return err
			}
			set, err := policyyaml.Decode(data)
			list, files = append(list, set...), files+1
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 5 {
		t.Errorf("there are policies in %d files only", files)
	}
	return list
}

// The form has fields for plans and lists, also in a copy, and names their mistakes where they are.
func TestFormOfPlansAndExceptions(t *testing.T) {
	w, b := asAdmin(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("60/1h"), Key: "user"}
	w.add(p)

	edit := func(changes url.Values) *answer { return b.submit("/policies/p/edit", "/policies/p/edit", changes) }

	// A browser sends line ends as CR and LF, and people write spaces around what they fill in.
	edit(url.Values{
		"plans": {"pro : 9000/1h burst=20\r\n\r\nfree: 100/1h"}, "plan_by": {" claim "},
		"allow_networks": {"10.0.0.0/8, 192.0.2.7\r\n::1"},
		"allow_keys":     {"carol\r\nda ve"}, "deny_networks": {"10.6.0.0/16"}, "deny_keys": {"mallory"},
		"deny_others": {"yes"}, "deny_status": {"429"},
	}).goes("/policies/p?done=saved")
	b.submit("/new?from=p", "/new", url.Values{"name": {"q"}}).goes("/policies/q?done=created")

	p.Plans, p.PlanBy = map[string]core.Limit{"pro": limit("9000/1h burst=20"), "free": limit("100/1h")}, "claim"
	p.Access = policy.Access{
		Allow: policy.Callers{Networks: []string{"10.0.0.0/8", "192.0.2.7", "::1"}, Keys: []string{"carol", "da ve"}},
		Deny:  policy.Callers{Networks: []string{"10.6.0.0/16"}, Keys: []string{"mallory"}}, DenyOthers: true,
		DenyStatus: 429,
	}

	// The copy q has the same plans and lists, as an exception that a copy loses is hard to notice.
	for _, name := range []string{"p", "q"} {
		got, err := w.Policy(t.Context(), w.admin, name)
		if p.Name = name; name == "q" {
			p.Mode = policy.Shadow // as every new policy
		}
		if d := service.Diff(p, got); err != nil || len(d) != 0 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}

	// Only one field of each row is wrong, so the mistake has to be beside that one.
	for field, row := range map[string]struct{ name, text, want string }{
		"no colon":     {"plans", "pro", `"pro" is not a name, a colon and a limit`},
		"no limit":     {"plans", "pro: many", `pro: `},
		"a plan twice": {"plans", "pro: 1/1h\npro: 2/1h", "pro: it is in the table twice"},
		"an algorithm": {"plans", "pro: 1/1h fixed-window",
			"pro: its algorithm is fixed-window, and that of the limit gcra"},
		"no function":    {"plan_by", "", "it has to name the function"},
		"no network":     {"allow_networks", "10.0.0.0/33", `the allowed network "10.0.0.0/33"`},
		"on both lists":  {"deny_keys", "carol", `the key "carol" is on both lists`},
		"another status": {"deny_status", "404", "404 is not 403 or 429"},
	} {
		// Networks, keys and the status are one field of the policy, Access, and so are their
		// mistakes.
		place := row.name
		if strings.Contains(row.name, "_networks") || strings.Contains(row.name, "_keys") || row.name == "deny_status" {
			place = "access"
		}

		got := edit(url.Values{row.name: {row.text}}).want(http.StatusUnprocessableEntity)
		if text := got.mistake(place); !strings.Contains(text, row.want) {
			t.Errorf("%s: %q at %s, want %q", field, text, place, row.want)
		}
	}

	// Empty fields take all of it away again.
	edit(url.Values{"plans": {""}, "plan_by": {""}, "allow_networks": {""}, "allow_keys": {""}, "deny_networks": {""},
		"deny_keys": {""}, "deny_others": nil, "deny_status": {""}}).goes("/policies/p?done=saved")

	got, err := w.Policy(t.Context(), w.admin, "p")
	if want := (policy.Policy{Name: "p", Apps: p.Apps, Limit: p.Limit, Key: p.Key}); err != nil ||
		len(service.Diff(want, got)) != 0 {
		t.Errorf("%v, %v", service.Diff(want, got), err)
	}
}

// What a request costs, which answers count, which paths are left out and which headers it must
// have: the form reads them, shows them again, and has their mistakes where they are.
func TestFormOfCostsAndConditions(t *testing.T) {
	w, b := asAdmin(t)
	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("60/1h"), Key: "user"}
	w.add(p)

	edit := func(changes url.Values) *answer { return b.submit("/policies/p/edit", "/policies/p/edit", changes) }
	stored := func(want policy.Policy) {
		t.Helper()
		got, err := w.Policy(t.Context(), w.admin, "p")
		if d := service.Diff(want, got); err != nil || len(d) != 0 {
			t.Errorf("%v, %v", d, err)
		}
	}

	edit(url.Values{"cost": {" 5 "}, "refund": {"304, 5xx"}, "except": {"/healthz\r\n\r\n /static/ "},
		"headers": {"X-Plan : free\r\nx-trace: a: b\nX-Plan: trial"}, "query": {"export: csv\n\"a:b\": c:d"},
		"claims": {"realm.roles: *"}}).goes("/policies/p?done=saved")
	p.Cost.Units, p.Refund = 5, policy.Statuses{"304", "5xx"}
	p.Match.Except = []string{"/healthz", "/static/"}
	p.Match.Headers = map[string]policy.Values{"X-Plan": {"free", "trial"}, "x-trace": {"a: b"}}
	p.Match.Query = map[string]policy.Values{"export": {"csv"}, "a:b": {"c:d"}}
	p.Match.Claims = map[string]policy.Values{"realm.roles": {"*"}}
	stored(p)

	// What was not touched stays, so the form shows all of it.
	edit(url.Values{"priority": {"7"}}).goes("/policies/p?done=saved")
	p.Priority = 7
	stored(p)
	edit(url.Values{"enforce": {"12.5"}, "warn": {" 80 % "}}).goes("/policies/p?done=saved")
	p.Enforce, p.Warn = 1250, 8000
	stored(p)
	edit(url.Values{"priority": {"7"}}).goes("/policies/p?done=saved")
	stored(p)
	edit(url.Values{"refund": {""}, "count_only": {"401"}}).goes("/policies/p?done=saved")
	p.Refund, p.CountOnly = nil, policy.Statuses{"401"}
	stored(p)

	// A table stands in the form as it is stored, and stays too.
	const table = `{"usage":"tokens","estimate":7,"at_most":50}`
	edit(url.Values{"cost": {" " + table + "\r\n"}}).goes("/policies/p?done=saved")
	edit(url.Values{"priority": {"8"}}).goes("/policies/p?done=saved")
	p.Priority, p.Cost = 8, policy.Cost{Usage: "tokens", Estimate: 7, AtMost: 50}
	stored(p)
	edit(url.Values{"priority": {"7"}, "cost": {"5"}}).goes("/policies/p?done=saved")

	for _, row := range []struct{ field, text, want string }{
		{"cost", `{"usage":"tokens"}`, "estimate: it is missing; write the units that are charged before the answer"},
		{"cost", `{"usage":"words","estimate":1}`, `usage: "words" is not "tokens" or "cost"`},
		{"cost", `{"usage":"tokens","usage":"cost"}`, `the field "usage" is repeated`},
		{"cost", `{"units":1}`, `unknown field "units"`},
		{"cost", `{"usage":`, "the cost ends too early"},
		{"cost", "many", `"many" is not a whole number`},
		{"cost", "0", "0 is too small; write 1 or more"},
		{"cost", "61", "61 is more than the limit 60/1h ever has"},
		{"enforce", "101", `share "101%": it is not above 0% and at most 100%`},
		{"warn", "100", "100% is not below 100%"},
		{"warn", "\x01", "share \"\\x01%\": it is not a number"},
		{"refund", "304 9xx", `"9xx" is not a status such as 304`},
		{"count_only", "600", `"600" is not a status such as 304`},
		{"except", "healthz", `"healthz" does not begin with a slash`},
		{"except", "/", `"/" excepts all requests`},
		{"headers", "X-Plan", `"X-Plan" is not a name, a colon and a value`},
		{"headers", "X-Plan: a\nX-Plan: a", `the value "a" of X-Plan is named twice`},
		{"query", "export", `"export" is not a name, a colon and a value, such as export: csv`},
		{"query", "export:", `the value of export is empty; write "*" for any`},
		{"claims", ": free", "the name of a claim is empty"},
		{"headers", "Host: a", "the header Host has its own recipe"},
	} {
		got := edit(url.Values{row.field: {row.text}}).want(http.StatusUnprocessableEntity)
		if text := got.mistake(row.field); !strings.Contains(text, row.want) {
			t.Errorf("%s %q: %q", row.field, row.text, text)
		}
	}

	// Both lists together contradict each other.
	got := edit(url.Values{"refund": {"304"}}).want(http.StatusUnprocessableEntity)
	if text := got.mistake("count_only"); !strings.Contains(text, "refund says already") {
		t.Errorf("both lists: %q", text)
	}

	edit(url.Values{"cost": {""}, "enforce": {""}, "warn": {""}, "count_only": {""}, "except": {""},
		"headers": {""}, "query": {""}, "claims": {""}}).goes("/policies/p?done=saved")
	stored(policy.Policy{Name: "p", Apps: p.Apps, Limit: p.Limit, Key: p.Key, Priority: 7})
}

// The mistakes of a ban are beside its fields.
func TestFormOfABan(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	// Each row has one wrong part, and what was filled in stays in all three fields.
	for _, row := range []struct{ after, span, most, place, want string }{
		{"", "10m", "24h", "ban_after", "it is empty; write a whole number"},
		{"20/month", "10m", "24h", "ban_after", `"20/month" is not a whole number`},
		{"20", "soon", "24h", "ban_for", `for "soon" is not a duration`},
		{"", "", "24h", "ban_after", "it is empty; write a whole number"},
		{"20 / 1m", "10m", "24h", "ban_after", `"20 / 1m" is more than one word`},
		{"-1", "10m", "24h", "ban_after", "-1 is too small; write 1 or more"},
		{"20", "10m max 12h", "24h", "ban_for", `"10m max 12h" is more than one word`},
		{"20", "25h", "24h", "ban_for", "for is above max"},
		{"20", "10m", "9999h", "ban_max", "max 9999h0m0s is not within"},
	} {
		got := b.submit("/policies/p/edit", "/policies/p/edit",
			url.Values{"ban_after": {row.after}, "ban_for": {row.span}, "ban_max": {row.most}})
		if text := got.want(http.StatusUnprocessableEntity).mistake(row.place); !strings.HasPrefix(text, row.want) {
			t.Errorf("%+v: %q", row, text)
		}

		if kept := got.form("/policies/p/edit"); kept.Get("ban_after") != row.after ||
			kept.Get("ban_for") != row.span || kept.Get("ban_max") != row.most {
			t.Errorf("%+v: kept as %v", row, kept)
		}
	}

	// A mistake of two fields together is at the ban, as the policy would wait but for it.
	wait := url.Values{"on_limit": {"wait"}, "wait": {"1s"}, "ban_after": {"20"}, "ban_for": {"10m"},
		"ban_max": {"24h"}}
	if text := b.submit("/policies/p/edit", "/policies/p/edit", wait).
		mistake("ban_after"); text != `only a policy that refuses requests can ban, and on_limit is "wait 1s"` {
		t.Errorf("a policy that waits: %q", text)
	}

	// What is left empty is the usual, and a longer ban is the longest itself.
	for _, row := range []struct{ span, most, want string }{
		{"", "", "20/1m for 10m max 24h"}, {"2m", "", "20/1m for 2m max 24h"}, {"", "1h", "20/1m for 10m max 1h"},
		{"48h", "", "20/1m for 48h max 48h"},
	} {
		form := url.Values{"ban_after": {"20"}, "ban_for": {row.span}, "ban_max": {row.most}}
		b.submit("/policies/p/edit", "/policies/p/edit", form).goes("/policies/p?done=saved")
		if page := b.get("/policies/p"); !page.shows(row.want) {
			t.Errorf("%+v is %s", row, page.text)
		}
	}

	// Spaces around the words are no mistake.
	b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"ban_after": {" 20 "}, "ban_for": {"10m"},
		"ban_max": {"24h"}}).goes("/policies/p?done=saved")

	page := b.get("/policies/p").want(http.StatusOK)
	if !page.shows("20/1m for 10m max 24h") || !page.links("/keys?policy=p") {
		t.Errorf("the page of the policy is %s", page.text)
	}

	b.get("/policies/p/history").has("20/1m for 10m max 24h")
}

// draws reports whether the page has the drawing of a limit.
func (a *answer) draws(limit string) (found bool) {
	a.each(func(n *html.Node) { found = found || n.Data == "img" && attr(n, "src") == drawingPath(limit) })
	return found
}

// filled returns the form of a new policy with some inputs filled in.
func filled(pairs ...string) url.Values {
	d := url.Values(blank())
	for i := 0; i < len(pairs); i += 2 {
		d.Set(pairs[i], pairs[i+1])
	}
	return d
}

func limit(s string) core.Limit {
	l, err := core.ParseLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

func TestFormShowsAllMistakes(t *testing.T) {
	_, b := asAdmin(t)

	// Every field has a mistake of its own, so none may hide another.
	form := url.Values{
		"name": {"Not A Name"}, "algorithm": {"fixed-window"}, "quota": {"many"},
		"period": {"x"}, "unit": {"m"}, "burst": {"-3"}, "debt": {"-4"},
		"segments": {"y"}, "key": {"other"}, "key_other": {"nobody+ip"}, "methods": {"GET GET"}, "host": {"a b"},
		"path": {"nowhere"}, "on_limit": {"wait"}, "wait": {"long"},
		"on_store_error": {"maybe"}, "mode": {"soon"}, "priority": {"high"},
		"description": {strings.Repeat("x", policy.MaxText+1)},
	}
	got := b.post("/new", form).want(http.StatusUnprocessableEntity)

	// A mistake is beside its field, and in the summary at the top with a link to it.
	for _, field := range []string{
		"name", "apps", "quota", "period", "burst", "debt", "segments", "key_other", "methods", "host", "path",
		"wait", "on_store_error", "mode", "priority", "description",
	} {
		if got.mistake(field) == "" {
			t.Errorf("there is nothing beside %s", field)
		}
		if !got.links("#"+field) || got.byID(field) == nil {
			t.Errorf("the summary has no link to %s", field)
		}
	}

	// A person corrects a form and does not write it anew.
	kept := got.form("/new")
	for _, field := range []string{"name", "quota", "period", "burst", "debt", "segments", "key_other", "host",
		"path", "wait", "priority", "description"} {
		if !slices.Equal(kept[field], form[field]) {
			t.Errorf("%s is kept as %q", field, kept[field])
		}
	}

	// Here each number is one, but they do not fit together or are too small.
	odd := b.post("/new", url.Values{"name": {"x"}, "apps": {"a"}, "limit_by": {"fields"},
		"algorithm": {"fixed-window"}, "quota": {"0"}, "period": {"0"}, "unit": {"s"}, "burst": {"5"},
		"segments": {"5"}, "key": {"ip"}, "on_limit": {"reject"}, "mode": {"enforce"}, "priority": {"0"}})

	for _, field := range []string{"quota", "period", "burst", "segments"} {
		if odd.mistake(field) == "" {
			t.Errorf("there is no mistake of the limit beside %s", field)
		}
	}

	// Debt means something to other algorithms, and the field is shown for all.
	log := url.Values{"name": {"x"}, "apps": {"a"}, "algorithm": {"sliding-log"},
		"quota": {"9"}, "period": {"1"}, "unit": {"s"}, "debt": {"5"}, "key": {"ip"}, "on_limit": {"reject"},
		"mode": {"enforce"}, "priority": {"0"}}
	if m := b.post("/new", log).want(http.StatusUnprocessableEntity).
		mistake("debt"); m != "debt means nothing to sliding-log" {
		t.Errorf("the mistake beside the debt of a log is %q", m)
	}
}

func TestFormOfACalendar(t *testing.T) {
	w, b := asAdmin(t)
	w.add(policy.Policy{Name: "p", Apps: []string{"a"}, Key: "user",
		Limit: limit("10000/month tz=Europe/Berlin start=15")})

	// The fields are filled in from the text of the limit.
	form := b.get("/policies/p/edit").form("/policies/p/edit")
	if form.Get("algorithm") != "calendar" || form.Get("calendar") != "month" ||
		form.Get("tz") != "Europe/Berlin" || form.Get("start") != "15" {
		t.Errorf("the form shows %v", form)
	}

	form["calendar"], form["tz"], form["start"], form["do"] = []string{"week"}, []string{"America/New_York"},
		[]string{"7"}, []string{"preview"}

	// The preview writes the text of what the fields say.
	got := b.post("/policies/p/edit", form).want(http.StatusOK)
	if !got.draws("10000/week tz=America/New_York start=7") {
		t.Errorf("the preview shows %v", got.form("/policies/p/edit"))
	}

	form["do"] = []string{"save"}
	b.post("/policies/p/edit", form).goes("/policies/p?done=saved")
	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil ||
		p.Limit != limit("10000/week tz=America/New_York start=7") {
		t.Errorf("the policy is %+v, %v", p, err)
	}
}

func TestFormOfACalendarNamesMistakes(t *testing.T) {
	w, b := asAdmin(t)
	w.add(policy.Policy{Name: "p", Apps: []string{"a"}, Key: "user", Limit: limit("10000/week")})

	form := b.get("/policies/p/edit").form("/policies/p/edit")

	// Only the zone and the day are wrong, so there is nothing at the fields of the limit as a
	// whole.
	form["tz"], form["start"], form["do"] = []string{"Mars/Olympus"}, []string{"31"}, []string{"save"}
	wrong := b.post("/policies/p/edit", form).want(http.StatusUnprocessableEntity)
	for field, want := range map[string]string{"tz": `tz "Mars/Olympus" is not in the time zone database`,
		"start": `start "31" is not a day of a week, 1 to 7`, "limit": ""} {
		if m := wrong.mistake(field); (m == "") != (want == "") || !strings.HasPrefix(m, want) {
			t.Errorf("the mistake beside %s is %q, want %q", field, m, want)
		}
	}

	// A word of another setting in the field of the zone must not become a part of the limit.
	form["tz"], form["start"], form["calendar"] = []string{"UTC burst=5"}, nil, []string{"decade"}
	for field, want := range map[string]string{"calendar": "choose one of them"} {
		if m := b.post("/policies/p/edit", form).want(http.StatusUnprocessableEntity).mistake(field); m != want {
			t.Errorf("the mistake beside %s is %q, want %q", field, m, want)
		}
	}

	form["calendar"] = []string{"day"}
	if m := b.post("/policies/p/edit", form).want(http.StatusUnprocessableEntity).
		mistake("tz"); m != `"UTC burst=5" is more than one word` {
		t.Errorf("the mistake beside two words is %q", m)
	}
}

func (a *answer) links(to string) (found bool) {
	a.each(func(n *html.Node) { found = found || n.Data == "a" && attr(n, "href") == to })
	return found
}

func TestValidateShowsMistakesAndDrawing(t *testing.T) {
	_, b := asAdmin(t)

	// A quota that is fine has no mistake, though the name is wrong.
	form := filled("name", "Bad Name", "apps", "a", "quota", "50")
	got := b.get("/validate?" + form.Encode()).want(http.StatusOK)
	got.has(`data-field="name"`, "/drawing.svg?limit=50%2F1m").lacks(`data-field="quota"`)

	form.Set("name", "good")
	b.get("/validate?" + form.Encode()).has("50 requests a minute for each address")

	// The drawing depends on its address alone, so a browser may keep it.
	svg := b.get("/drawing.svg?limit=50/1m").want(http.StatusOK)
	if kind := svg.header.Get("Content-Type"); kind != "image/svg+xml" ||
		!strings.Contains(svg.header.Get("Cache-Control"), "max-age") {
		t.Errorf("the drawing is %s, %s", kind, svg.header.Get("Cache-Control"))
	}

	b.get("/drawing.svg?limit=often").want(http.StatusBadRequest)
}

// The pages have a form for every change.
func TestFormsCoverEveryEdit(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	// The steps follow each other: each one changes what those before have left.
	b.submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}}).goes("/policies/p?done=mode")
	b.submit("/policies?mode=shadow&sort=-name", "/policies/bulk", url.Values{"policy": {"2:p"}, "do": {"off"},
		"confirm": {"yes"}}).goesTo("/policies?mode=shadow&sort=-name&done=bulk&at=")
	b.agree("/policies/p/history", "/policies/p/rollback", nil).goes("/policies/p?done=rolledback")
	b.submit("/new?from=p", "/new", nil).goes("/policies/p-copy?done=created")
	b.submit("/policies/p/delete", "/policies/p/delete", nil).goes("/policies?done=deleted&of=p")
	b.agree("/policies/p/history", "/policies/p/rollback", nil).goes("/policies/p?done=rolledback")

	// A slash in a name must not end the part of the path that holds it.
	b.submit("/apps", "/apps", url.Values{"name": {"c/d"}, "description": {"x"}}).goes("/apps?done=app")
	b.submit("/apps", "/apps/describe", url.Values{"description": {"y"}}).goes("/apps?done=appsaved")
	b.submit("/apps/delete?name=a", "/apps/delete", nil).want(http.StatusUnprocessableEntity)
	b.submit("/apps/delete?name=c/d", "/apps/delete", nil).goes("/apps?done=appdeleted")

	// The same holds for an at sign, as names may be addresses of e-mail.
	b.submit("/users", "/users", url.Values{"name": {"ada@example.com"}}).want(http.StatusOK)
	user := "/users/ada@example.com"
	b.submit(user, user+"/role", url.Values{"role": {"owner"}}).goes(user + "?done=role")
	b.agree(user, user+"/status", url.Values{"do": {"promote"}}).goes(user + "?done=status")
	b.submit(user, user+"/status", url.Values{"do": {"disable"}}).goes(user + "?done=status")
	b.submit(user, user+"/status", url.Values{"do": {"enable"}}).goes(user + "?done=status")
	b.agree(user, user+"/password", nil).want(http.StatusOK)
	b.agree("/users/admin", "/users/admin/status", url.Values{"do": {"disable"}}).goes("/users/admin?done=status")
}

func TestAccountForms(t *testing.T) {
	w := newWorld(t)
	b, other := w.as("admin"), w.as("admin")

	got := b.submit("/account", "/account/tokens", url.Values{"label": {"ci"}}).want(http.StatusOK)
	got.has(auth.TokenPrefix)

	// A secret is shown once, because only its digest is stored.
	if strings.Contains(b.get("/account").text, auth.TokenPrefix) {
		t.Error("the secret is shown again")
	}

	if got := b.submit("/account", "/account/tokens/revoke", nil).
		want(http.StatusOK); got.heading() != "Revoke the token ci?" ||
		!strings.Contains(got.text, "get a 401 from now on") {
		t.Errorf("the question is %s", got.text)
	}

	// The first browser ends the session of the second one.
	b.agree("/account", "/account/tokens/revoke", nil).goes("/account?done=revoked")
	b.submit("/account", "/account/sessions/end", nil).goes("/account?done=ended")
	_ = other

	// A password is never sent back, not even a wrong one.
	wrong := b.submit("/account", "/account/password",
		url.Values{"old": {"x"}, "password": {"short"}, "repeat": {"other"}}).want(http.StatusUnprocessableEntity)
	if wrong.mistake("password") == "" || wrong.mistake("repeat") == "" ||
		strings.Contains(wrong.text, `value="short"`) {
		t.Error("the mistakes in the password are not shown, or the password is")
	}

	b.submit("/settings", "/settings", url.Values{"idle": {"2h"}}).goes("/settings?done=settings")
	if m := b.submit("/settings", "/settings", url.Values{"idle": {"soon"}, "life": {"1ns"}}).
		want(http.StatusUnprocessableEntity); m.mistake("idle") == "" {
		t.Error("the mistake in the settings is not shown")
	}
}

// The form keeps the limits of single keys, whatever signs the keys hold.
func TestFormKeepsLimitsOfSingleKeys(t *testing.T) {
	// Colons, line ends, quotes and spaces have a meaning in the text of the form.
	want := map[string]policy.Override{}
	for _, key := range []string{"user:42", "2001:db8::/64", " spaces ", `"quoted"`, "a\nb", ": ", "é"} {
		want[key] = policy.Override{Limit: core.Limit{Quota: 7, Period: time.Minute, Burst: 3}}
	}
	for _, key := range []string{"acme:*", "a until b", "a until b: c"} {
		want[key] = policy.Override{Limit: core.Limit{Quota: 7, Period: time.Minute},
			Until: time.Date(2026, 12, 4, 17, 0, 0, 0, time.UTC)}
		want[key+"x"] = policy.Override{Limit: core.Limit{Quota: 7, Period: time.Minute}}
	}

	p := policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("7/1m burst=3"), Key: "header:X", Overrides: want}
	sent := draftOf(url.Values(draftFrom(p)))
	if got, _ := sent.policy(); !reflect.DeepEqual(got.Overrides, want) {
		t.Errorf("%v\n%s", got, sent.Get("overrides"))
	}

	// A line without a colon and a space, a text that is no limit, and a key that occurs twice.
	sent.set("overrides", "user:42 9000\na: x\nb: 1/1m\nb: 2/1m")
	if _, m := sent.policy(); len(m["overrides"]) != 3 {
		t.Errorf("%q", m["overrides"])
	}
}
