package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/otp/totp"
)

// form makes the fields of a form from names and values.
func form(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

// packed returns the text of an import as the form of its plan sends it.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text)) // a buffer takes all
	w.Close()
	return base64.RawURLEncoding.EncodeToString(b.Bytes())
}

// asked makes states of pages that a user opens by their addresses.
func asked(user string, paths ...string) (list []state) {
	for _, p := range paths {
		list = append(list, state{name: p + " for " + user, user: user, path: p})
	}
	return list
}

// fetched returns a script that asks for an address as the script of the pages does, or as a
// download.
func fetched(path string) string {
	return fmt.Sprintf(`fetch(%q).then((r) => r.ok)`, path)
}

// submit returns a script that sends the form that has a field or a button.
func submit(selector string) func() string {
	return func() string {
		return fmt.Sprintf(`document.querySelector(%q).closest("form").requestSubmit()`, selector)
	}
}

// enterCode returns a script that sends a code of a second factor.
func enterCode(code func() string) func() string {
	return func() string {
		return fmt.Sprintf(`document.querySelector("#code").value = %q;`, code()) + submit("#code")()
	}
}

const wrongForm = http.StatusUnprocessableEntity

// fullStates are the states of a console that has something to show.
func fullStates(fay device) []part {
	return []part{
		{"readings", readings()}, {"readings of others", others()}, {"policies", append(composing(), changing()...)},
		{"keys", append(keysAndBans(), beside()...)}, {"alerts", alerting()}, {"many", together()},
		{"imports", importing()},
		{"management", managing()}, {"log-in", signingIn(fay.secret)}, {"accounts", accounts(fay.recovery)},
		{"refusals", refusals()},
	}
}

// readings only show something.
func readings() []state {
	list := asked("admin",
		"/", "/search", "/search?q=many", "/search?q=%3Cb%3E", "/?app=shop", "/?app=shop&range=15m",
		"/?app=unused&range=30d",
		"/policies", "/policies?page=2", "/policies?sort=-share&search=many-1", "/policies?search=nothing", "/policies?app=shop&mode=shadow",
		"/policies?app="+longApp, "/policies?search=%3Cb%3E", "/deleted",
		"/policies/visitors", "/policies/watched", "/policies/sleeping", "/policies/people", "/policies/jobs", "/policies/fallow", "/policies/"+longPolicy, "/policies/visitors?range=30d",
		"/policies/visitors/history", "/policies/gone/history", "/policies/visitors/diff", "/policies/visitors/diff?from=0&to=5", "/policies/visitors/diff?from=5&to=5",
		"/keys", "/keys?policy=visitors", "/keys?app=shop&policy=people", "/keys?app=unused", "/keys?view=banned",
		"/keys?view=banned&policy=visitors", "/keys?view=one",
		"/import", "/apps", "/users", "/users/ada", "/users/rob", "/users/fay", "/users/admin", "/users/max@example.com",
		"/audit", "/audit?action=policy.&outcome=done", "/audit?actor=nobody", "/settings", "/account",
	)
	return append(list,
		state{name: "traffic after a refresh", user: "admin", path: "/?app=shop", on: fetched("/live?app=shop")},
		state{name: "the menu of a mode", user: "admin", path: "/policies/watched",
			on: `document.querySelector(".modes").open = true`},
		state{name: "a policy after a refresh", user: "admin", path: "/policies/watched",
			on: fetched("/policies/watched/live")},
		state{name: "the banner after a refresh", user: "admin", path: "/policies", on: fetched("/banner")},
		state{name: "counts as a file", user: "admin", path: "/?app=shop",
			on: `fetch(document.querySelector("a[download]").href).then((r) => r.ok)`},
		state{name: "policies as a file", user: "admin", path: "/import", on: fetched("/export?format=yaml")},
		state{name: "the audit log as a file", user: "admin", path: "/audit", on: fetched("/audit/export")},
		state{name: "a version that is none", user: "admin", path: "/policies/visitors/diff?from=x&to=y",
			status: wrongForm},
	)
}

// others are pages of users who may do less.
func others() (list []state) {
	list = asked("vic", "/", "/policies", "/policies?mode=off", "/keys", "/keys?view=banned", "/import", "/apps",
		"/account", "/deleted")
	list = append(list, asked("nora", "/", "/policies", "/keys", "/keys?view=banned", "/import", "/apps")...)
	list = append(list, asked("pat", "/account", "/account/second-factor", "/login")...)
	list = append(list, state{name: "no new policy for a viewer", user: "vic", path: "/new",
		status: http.StatusForbidden})
	return append(list, asked("vic", "/policies/visitors", "/policies/visitors/history", "/users/vic")...)
}

// longPolicy is the policy with the longest name and all fields.
var longPolicy = "n" + strings.Repeat("ame-", 15)

// composing fills in the form of a policy.
func composing() []state {
	list := asked("admin", "/new", "/new?app=shop", "/new?from="+longPolicy, "/policies/visitors/edit",
		"/policies/"+longPolicy+"/edit")
	for _, template := range []string{"login", "plans", "webhook"} {
		list = append(list, asked("admin", "/new?template="+template)...)
	}
	return append(list,
		state{name: "a preview while it is filled in", user: "admin", path: "/new",
			on: typed("#quota", "many") + `.then(() => ` + until(`document.querySelector("[aria-invalid]")`) + `)`},
		state{name: "a preview", user: "admin", path: "/new", send: form("do", "preview", "name", "fresh",
			"apps", "shop", "quota", "7", "period", "2", "unit", "h", "key", "ip", "algorithm", "token-bucket",
			"mode", "shadow")},
		state{name: "every mistake of a new policy", user: "admin", path: "/new", status: wrongForm, send: form(
			"do", "save", "name", "NO", "quota", "x", "period", "0", "unit", "year",
			"key", "k ey", "path", "nopath", "host", "h h", "methods", "G(T", "on_limit", "wait", "wait", "x",
			"ban_after", "x", "ban_for", "y", "ban_max", "z", "mode", "x", "algorithm", "x",
			"cost", "x", "refund", "x", "count_only", "y", "except", "x", "headers", "x", "query", "x", "claims", "x",
			"plans", "x", "plan_by", "", "overrides", "y", "allow_networks", "n", "deny_keys", "\x00", "on_store_error", "x", "priority", "x", "comment", strings.Repeat("x", 600), "debt", "x", "segments", "x", "burst", "x")},
		state{name: "mistakes of a calendar", user: "admin", path: "/new", status: wrongForm,
			send: form("do", "save", "algorithm", "calendar", "calendar", "x", "tz", "Nowhere", "start", "99",
				"quota", "1", "name", "x")},
		state{name: "mistakes of an edit", user: "admin", path: "/policies/visitors/edit", status: wrongForm,
			send: form("do", "save", "version", "5", "quota", "x")},
		state{name: "a conflict", user: "admin", path: "/policies/visitors/edit", status: http.StatusConflict,
			send: form("do", "save", "version", "1", "name", "visitors", "description", hostile, "apps", "shop", "quota", "7",
				"period", "1", "unit", "h", "algorithm", "sliding-log", "key", "ip", "mode", "shadow", "priority", "0")},
		state{name: "what is drawn", user: "admin", path: "/new", on: fetched("/drawing.svg?limit=5/1m")},
		state{name: "what is checked", user: "admin", path: "/new", on: fetched("/validate?quota=5")},
	)
}

// typed returns a script that types into a field, and a promise of that.
func typed(field, text string) string {
	return fmt.Sprintf(`Promise.resolve(document.querySelector(%q)).then((f) => { f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); })`, field, text)
}

// until returns a script that waits until a condition holds.
func until(condition string) string {
	return fmt.Sprintf(`new Promise((done) => { const look = () => %s ? done(true) : setTimeout(look, 20); look(); })`, condition)
}

// changing changes policies, and asks before.
func changing() []state {
	return []state{
		{name: "turn off?", user: "admin", path: "/policies/visitors/mode", send: form("mode", "off", "version", "5")},
		{name: "a change of the mode, with its undo", user: "admin", path: "/policies/undone/mode",
			send: form("mode", "enforce", "version", "1", "confirm", "yes")},
		{name: "the change was undone", user: "admin", path: "/policies/undone/undo", send: form("version", "2")},
		{name: "an undo that is too late", user: "admin", path: "/policies/undone/undo", send: form("version", "2"),
			status: http.StatusConflict},
		{name: "mistakes of a pause", user: "admin", path: "/policies/visitors/mode", status: wrongForm,
			send: form("version", "5", "mode", "x", "for", "x", "comment", strings.Repeat("x", 600))},
		{name: "off for hours?", user: "admin", path: "/policies/undone/mode",
			send: form("version", "3", "mode", "off", "for", "30")},
		{name: "a pause ends early", user: "admin", path: "/policies/fallow",
			then: submit(`[action="/policies/fallow/pause"] button`)},
		{name: "delete?", user: "admin", path: "/policies/visitors/delete"},
		{name: "delete, with a mistake", user: "admin", path: "/policies/visitors/delete", status: wrongForm,
			send: form("version", "5", "confirm", "yes", "comment", strings.Repeat("x", 600))},
		{name: "roll back?", user: "admin", path: "/policies/visitors/rollback", send: form("to", "1", "version", "5")},
		{name: "restore?", user: "admin", path: "/policies/gone/rollback", send: form("to", "1", "version", "2")},
		{name: "nothing ticked", user: "admin", path: "/policies/bulk", send: form("do", "off"), status: wrongForm},
		{name: "turn many off?", user: "admin", path: "/policies/bulk",
			send: form("do", "off", "policy", "5:visitors", "policy", "1:watched", "policy", "1:"+longPolicy)},
		{name: "many that were changed", user: "admin", path: "/policies/bulk",
			send: form("do", "off", "policy", "1:visitors"), status: http.StatusConflict},
	}
}

// beside gives keys limits beside a policy.
func beside() []state {
	const path = "/policies/people/overrides"
	return []state{
		{name: "mistakes of an override", user: "admin", path: path, status: wrongForm,
			send: form("key", "", "limit", hostile, "until", "2001-01-01T00:00")},
		{name: "an override was saved", user: "admin", path: path,
			send: form("key", hostile, "limit", "7/1h", "until", "2099-01-01T00:00")},
		{name: "a key was banned beside a policy", user: "admin", path: "/keys/ban",
			send: form("policy", "people", "key", "alice", "confirm", "yes", "for", "1h")},
		{name: "overrides that were searched", user: "admin", path: "/policies/people?search=ali"},
		{name: "an override was removed", user: "admin", path: path, send: form("remove",
			base64.RawURLEncoding.EncodeToString([]byte("alice")))},
	}
}

// keysAndBans look keys up, and change them.
func keysAndBans() []state {
	odd := strconv.Quote(hostile + "\x00\n")
	at := func(policy, key string) string {
		return "/keys?" + url.Values{"policy": {policy}, "key": {key}}.Encode()
	}
	return []state{
		{name: "a request that matches", user: "admin", path: "/keys/try",
			send: form("app", "shop", "method", "GET", "path", "/", "address", "192.0.2.1", "user", hostile, "headers", "X-Y: z")},
		{name: "mistakes of a request", user: "admin", path: "/keys/try", status: wrongForm,
			send: form("app", "shop", "method", "G T", "path", "x", "address", "x", "headers", "x", "claims", "x")},
		{name: "a request that matches nothing", user: "admin", path: "/keys/try",
			send: form("app", "unused", "method", "GET", "path", "/", "address", "192.0.2.1")},
		{name: "a banned key", user: "admin", path: at("visitors", "192.0.2.1")},
		{name: "a fresh key", user: "admin", path: at("visitors", "192.0.2.7")},
		{name: "a key of hostile text", user: "admin", path: at("people", hostile)},
		{name: "a key that cannot be seen", user: "admin", path: at("people", odd)},
		{name: "a key under every policy", user: "admin", path: at("", "192.0.2.1")},
		{name: "a key of a viewer", user: "vic", path: at("visitors", "192.0.2.1")},
		{name: "the menu of a key", user: "admin", path: at("visitors", "192.0.2.1"),
			on: `(document.querySelector(".more").click(), document.querySelector(":popover-open") !== null)`},
		{name: "a key of no policy", user: "admin", path: at("none", "x"),
			status: wrongForm},
		{name: "reset?", user: "admin", path: "/keys/reset", send: form("policy", "people", "key", odd)},
		{name: "a key was reset", user: "admin", path: "/keys/reset", send: form("policy", "people", "key", odd,
			"confirm", "yes")},
		{name: "ban?", user: "admin", path: "/keys/ban", send: form("policy", "visitors", "key", odd)},
		{name: "ban, for how long?", user: "admin", path: "/keys/ban",
			send: form("policy", "visitors", "key", odd, "confirm", "yes", "for", "long"), status: wrongForm},
		{name: "a key was banned", user: "admin", path: "/keys/ban", send: form("policy", "visitors", "key", odd,
			"confirm", "yes", "for", "1h")},
		{name: "never limit?", user: "admin", path: "/keys/allow", send: form("policy", "people", "key", odd)},
		{name: "lift?", user: "admin", path: "/keys/lift", send: form("policy", "visitors", "key", "192.0.2.1")},
		{name: "which limit?", user: "admin", path: "/keys/limit", send: form("policy", "people", "key", odd)},
		{name: "which limit, with a mistake?", user: "admin", path: "/keys/limit",
			send: form("policy", "people", "key", odd, "limit", "x"), status: wrongForm},
		{name: "a limit of its own?", user: "admin", path: "/keys/limit",
			send: form("policy", "people", "key", odd, "limit", "9/1h")},
		{name: "grant?", user: "admin", path: "/keys/grant", send: form("policy", "people", "key", odd)},
		{name: "grant what?", user: "admin", path: "/keys/grant", status: wrongForm,
			send: form("policy", "people", "key", odd, "confirm", "yes", "units", "x", "until",
				"2020-01-31T09:00", "zone", "x")},
		{name: "a key was granted units", user: "admin", path: "/keys/grant", send: form("policy", "people",
			"key", odd, "confirm", "yes", "units", "1,000", "until", "2030-01-31T09:00", "zone", "UTC")},
		{name: "a key with granted units", user: "admin", path: at("people", odd)},
		{name: "revoke?", user: "admin", path: "/keys/revoke", send: form("policy", "people", "key", odd)},
		{name: "debit?", user: "admin", path: "/keys/debit", send: form("policy", "people", "key", odd)},
		{name: "a key was debited", user: "admin", path: "/keys/debit", send: form("policy", "people", "key", odd,
			"confirm", "yes", "units", "1")},
	}
}

// atHook returns a script that opens the first webhook of the list, or sends a form about it.
func atHook(path string, fields url.Values) func() string {
	const first = `document.querySelector("main a.strong").href`
	if fields == nil {
		return func() string { return `location = ` + first }
	}
	to := fmt.Sprintf(`"/alerts/" + new URL(%s).searchParams.get("webhook") + %q`, first, path)
	return func() string { return posting(to, urlencoded, fields) }
}

// alerting makes a webhook and changes it.
func alerting() []state {
	hook := form("name", hostile, "url", "http://127.0.0.1:1/"+strings.Repeat("x", 200), "apps", "shop",
		"repeat_after", "4h", "conditions", "refused", "conditions.refused.over", "1",
		"conditions.refused.count", "1", "conditions.refused.minutes", "1")
	wrong := form("name", "", "url", "x", "apps", "none", "repeat_after", "x", "conditions", "refused",
		"conditions.refused.over", "x",
		"conditions.refused.count", "x", "conditions.refused.minutes", "x", "conditions.refused.policy", "N\x01O")
	at := func(name, path string, fields url.Values) state {
		return state{name: name, user: "admin", path: "/alerts", then: atHook(path, fields)}
	}
	broken := at("mistakes of an edit of a webhook", "", wrong)
	broken.status = wrongForm
	list := asked("admin", "/alerts", "/alerts?webhook=new")
	list = append(list, asked("vic", "/alerts")...)
	return append(list,
		state{name: "mistakes of a webhook", user: "admin", path: "/alerts", send: wrong, status: wrongForm},
		state{name: "a webhook was added", user: "admin", path: "/alerts", send: hook},
		at("a webhook", "", nil), at("a test message that does not arrive", "/test", form()),
		broken, at("a webhook was edited", "", hook), at("a new secret", "/secret", form()),
		at("a webhook was turned off", "/status", form("do", "off")), state{name: "webhooks", user: "admin", path: "/alerts"},
		at("a webhook was removed", "/delete", form()),
	)
}

// together changes several policies at once, and shows what refreshes itself.
func together() []state {
	return []state{
		{name: "many were changed", user: "admin", path: "/policies/bulk",
			send: form("do", "enforce", "policy", "1:many-10", "policy", "1:many-11", "confirm", "yes", "here", "search=many-1", "comment", hostile)},
		{name: "an undo of nothing", user: "admin", path: "/policies/undo", send: form("at", "1"),
			status: http.StatusNotFound},
		{name: "keys after a refresh", user: "admin", path: "/keys?app=shop", on: fetched("/keys/live?app=shop")},
		{name: "bans after a refresh", user: "admin", path: "/keys?view=banned", on: fetched("/keys/live?view=banned")},
	}
}

// importing plans what an import would do.
func importing() []state {
	data := "policies:\n- {name: visitors, apps: [shop], limit: 9/1h sliding-log, key: ip}\n- {name: added, apps: [shop, unused], limit: 1/1s, key: ip}\n"
	many := "policies:\n"
	for i := range 500 {
		many += "- {name: p" + strconv.Itoa(i) + ", apps: [shop], limit: 9/1h, key: ip}\n"
	}
	return []state{
		{name: "a plan of many changes", user: "admin", path: "/import", files: true,
			send: form("data", many, "format", "yaml")},
		{name: "many mistakes of an import", user: "admin", path: "/import", files: true, status: wrongForm,
			send: form("data", strings.ReplaceAll(many, "9/1h", "often"), "format", "yaml")},
		{name: "a plan", user: "admin", path: "/import", files: true, send: form("data", data, "format", "yaml")},
		{name: "a plan that deletes", user: "admin", path: "/import", files: true,
			send: form("data", data, "format", "yaml", "missing", "remove")},
		{name: "a plan that does nothing", user: "admin", path: "/import", files: true,
			send: form("data", "policies: []", "format", "yaml")},
		{name: "mistakes of an import", user: "admin", path: "/import", files: true, status: wrongForm,
			send: form("data", "policies:\n- {name: x, limit: y}\n- {name: NO}", "format", "yaml")},
		{name: "a plan that is old", user: "admin", path: "/import", files: true, status: http.StatusConflict,
			send: form("confirm", "yes", "packed", packed(data), "format", "yaml", "base", "1")},
	}
}

// managing changes applications, users and settings.
func managing() []state {
	return []state{
		{name: "mistakes of an application", user: "admin", path: "/apps",
			send: form("name", "NO", "description", strings.Repeat("x", 1001)), status: wrongForm},
		{name: "an application was added", user: "admin", path: "/apps", send: form("name", "added")},
		{name: "a description was saved", user: "admin", path: "/apps/describe",
			send: form("name", "added", "description", hostile)},
		{name: "a description that is too long", user: "admin", path: "/apps/describe",
			send: form("name", "added", "description", strings.Repeat("x", 1001)), status: wrongForm},
		{name: "delete an application?", user: "admin", path: "/apps/delete?name=added"},
		{name: "delete an application with policies", user: "admin", path: "/apps/delete",
			send: form("name", "shop", "confirm", "yes"), status: wrongForm},
		{name: "mistakes of a user", user: "admin", path: "/users", send: form("name", "N O"), status: wrongForm},
		{name: "a user was added", user: "admin", path: "/users", send: form("name", "zoe")},
		{name: "a role was saved", user: "admin", path: "/users/zoe/role", send: form("app", "shop", "role", "viewer")},
		{name: "promote?", user: "admin", path: "/users/zoe/status", send: form("do", "promote")},
		{name: "give it up?", user: "admin", path: "/users/admin/status", send: form("do", "demote")},
		{name: "disable yourself?", user: "admin", path: "/users/admin/status", send: form("do", "disable")},
		{name: "a user was disabled", user: "admin", path: "/users/zoe/status",
			send: form("do", "disable", "confirm", "yes")},
		{name: "a new one-time password?", user: "admin", path: "/users/zoe/password", send: form("x", "y")},
		{name: "a new one-time password", user: "admin", path: "/users/zoe/password", send: form("confirm", "yes")},
		{name: "remove a second factor?", user: "admin", path: "/users/fay/second-factor", send: form()},
		{name: "revoke all tokens of a user?", user: "admin", path: "/users/zoe/tokens", send: form()},
		{name: "the tokens of a user were revoked", user: "admin", path: "/users/zoe/tokens",
			send: form("confirm", "yes")},
		{name: "a wrong password for a backup", user: "admin", path: "/settings/backup", send: form("password", "x"),
			status: wrongForm},
		{name: "mistakes of the settings", user: "admin", path: "/settings",
			send: form("idle", "x", "life", "y", "factor", "z", "days", "w"), status: wrongForm},
		{name: "the settings were saved", user: "admin", path: "/settings",
			send: form("idle", "1h", "life", "12h", "factor", "nobody", "days", "366")},
	}
}

// takingOver are the states of a console whose Redis has the policies of another database.
func takingOver() []part {
	return []part{{"take-over", []state{
		{name: "a banner about the policies of another database", user: "admin", path: "/policies",
			on: until(`document.body.innerText.includes("of another database")`)},
		{name: "take over?", user: "admin", path: "/takeover"},
		{name: "take over what has changed since?", user: "admin", path: "/takeover",
			send: form("confirm", "yes", "version", "x")},
		{name: "taken over", user: "admin", path: "/takeover", then: submit(`[action="/takeover"] button`)},
	}}}
}

// signingIn signs in with passwords, codes and at a provider.
func signingIn(secret string) []state {
	wrong := func() string { return "000000" }
	right := func() string {
		code, _ := totp.GenerateCode(secret, time.Now().Add(30*time.Second)) // that of now may have been used
		return code
	}
	return []state{
		{name: "the log-in", path: "/login"},
		{name: "the log-in on the way to a page", path: "/policies"},
		{name: "a wrong password", path: "/login", send: form("name", hostile, "password", "x"),
			status: http.StatusUnauthorized},
		{name: "the log-in after signing out", path: "/login?done=out"},
		{name: "a code is asked for", path: "/login", send: form("name", "fay", "password", password)},
		{name: "a wrong code", path: "/login", send: form("name", "fay", "password", password), then: enterCode(wrong),
			status: http.StatusUnauthorized},
		{name: "a right code", path: "/login", send: form("name", "fay", "password", password), then: enterCode(right)},
		{name: "a code without a log-in", path: "/login/code", send: form("code", "000000"),
			status: http.StatusUnauthorized},
		{name: "the page of the code without a log-in", path: "/login/code"},
		{name: "the provider names nobody", path: "/login/oidc", status: http.StatusForbidden},
		{name: "the provider names a user", path: "/login/oidc?next=/account"},
		{name: "a user signs out", path: "/login", send: form("name", "nora", "password", password),
			then: submit(`[action="/logout"] button`)},
	}
}

// accounts are the pages of users themselves.
func accounts(recovery string) []state {
	return []state{
		{name: "a password has to be chosen", user: "otto", path: "/"},
		{name: "mistakes of the first password", user: "otto", path: "/account/password",
			send: form("old", "x", "password", "short", "repeat", "other"), status: wrongForm},
		{name: "mistakes of a password", user: "ada", path: "/account/password",
			send: form("old", "x", "password", "short", "repeat", "other"), status: wrongForm},
		{name: "a token was made", user: "tess", path: "/account/tokens",
			send: form("label", hostile, "scope", "write", "days", "30", "apps", "shop")},
		{name: "mistakes of a token", user: "tess", path: "/account/tokens",
			send:   form("label", "", "scope", "x", "days", "999", "until", "2001-01-01", "apps", "none"),
			status: wrongForm},
		{name: "revoke a token?", user: "admin", path: "/account",
			then: submit(`[action="/account/tokens/revoke"] button`)},
		{name: "a session was ended", user: "admin", path: "/account",
			then: submit(`[action="/account/sessions/end"] button`)},
		{name: "a second factor that is on", user: "fay", path: "/account/second-factor"},
		{name: "a wrong password for recovery codes", user: "fay", path: "/account/second-factor/codes",
			send: form("password", "x"), status: wrongForm},
		{name: "new recovery codes", user: "fay", path: "/account/second-factor/codes",
			send: form("password", password, "code", recovery)},
		{name: "a wrong password to turn it off", user: "fay", path: "/account/second-factor/off",
			send: form("password", "x"), status: wrongForm},
		{name: "a second factor that is off", user: "mo", path: "/account/second-factor"},
		{name: "a wrong password for a second factor", user: "mo", path: "/account/second-factor",
			send: form("password", "x"), status: wrongForm},
		{name: "a second factor is set up", user: "mo", path: "/account/second-factor",
			send: form("password", password)},
		{name: "a wrong code of a new device", user: "mo", path: "/account/second-factor/confirm",
			send: form("code", "000000"), status: wrongForm},
	}
}

// refusals are pages of errors.
func refusals() []state {
	return []state{
		{name: "not found", user: "admin", path: "/nowhere", status: http.StatusNotFound},
		{name: "not found by a stranger", path: "/nowhere", status: http.StatusNotFound},
		{name: "no such policy", user: "admin", path: "/policies/none", status: http.StatusNotFound},
		{name: "not permitted", user: "vic", path: "/audit", status: http.StatusForbidden},
		{name: "not permitted to edit", user: "vic", path: "/policies/visitors/edit", status: http.StatusForbidden},
		{name: "a session that has ended", path: "/policies/visitors/mode",
			send: form("mode", "off", "version", "5", "password", "x"), status: http.StatusUnauthorized},
		{name: "no such method", user: "admin", path: "/policies", send: form("x", "y"),
			status: http.StatusMethodNotAllowed},
		{name: "too large", user: "admin", path: "/apps", send: form("name", strings.Repeat("x", 2<<20)),
			status: http.StatusRequestEntityTooLarge},
		{name: "a form that cannot be read", user: "admin", path: "/import", files: true,
			send: form("confirm", "yes", "base", "x"), status: http.StatusBadRequest},
	}
}

// statesWithoutRedis are those of a console whose Redis does not answer.
func statesWithoutRedis() []state {
	list := []state{{name: "the banner while Redis is away", user: "admin", path: "/policies/undone/mode",
		send: form("mode", "enforce", "version", "3", "confirm", "yes"),
		on:   until(`document.body.innerText.includes("Redis has not answered")`)}}
	list = append(list, asked("admin", "/", "/policies", "/policies/visitors", "/keys", "/keys?view=banned",
		"/keys?view=one")...)
	list = append(list, asked("vic", "/policies/visitors")...)
	return append(list,
		state{name: "a key while Redis is away", user: "admin", path: "/keys?policy=visitors&key=192.0.2.1",
			status: http.StatusServiceUnavailable},
		state{name: "a ban while Redis is away", user: "admin", path: "/keys/ban",
			send:   form("policy", "visitors", "key", "192.0.2.1", "confirm", "yes", "for", "1h"),
			status: http.StatusServiceUnavailable},
	)
}

// emptyStates are those of a console in which nothing is yet, without Redis, and whose settings
// require a second factor, which new has not.
func emptyStates() []part {
	list := asked("admin", "/", "/policies", "/new", "/deleted", "/keys", "/keys?view=banned", "/keys?view=one",
		"/import", "/apps", "/users", "/audit?actor=x", "/account")
	return []part{{"nothing yet", append(list,
		state{name: "a second factor has to be set up", user: "new", path: "/policies"},
		state{name: "the log-in without a provider", path: "/login"},
		state{name: "the first application", user: "admin", path: "/apps", send: form("name", "shop")},
		state{name: "no policies yet", user: "admin", path: "/policies"},
		state{name: "a policy without Redis", user: "admin", path: "/new",
			send: form("do", "save", "name", "first", "apps", "shop", "algorithm", "gcra", "quota", "5", "period", "1",
				"unit", "m", "key", "ip", "mode", "shadow", "priority", "0")},
		state{name: "a key without Redis", user: "admin", path: "/keys?policy=first&key=x"},
	)}}
}
