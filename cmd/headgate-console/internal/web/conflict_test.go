package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
)

// stale opens the form of p, and then another user saves it.
func (w *world) stale() (b *browser, form url.Values) {
	w.t.Helper()
	w.policy("p", "5/1m")
	b = w.as("admin")
	form = b.get("/policies/p/edit").want(http.StatusOK).form("/policies/p/edit")
	p, err := w.Policy(w.t.Context(), w.admin, "p")
	w.must(err)
	p.Limit, p.Description = core.Limit{Quota: 7, Period: p.Limit.Period}, "theirs & <theirs>"
	_, err = w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
	return b, form
}

func TestConflictShowsBothVersions(t *testing.T) {
	w := newWorld(t)
	b, form := w.stale()

	// The other has changed the limit, as this form does, and the description, which it does not.
	form.Set("quota", "9")
	form.Set("path", "/mine")
	form.Set("wait", "2s")
	form.Set("on_limit", "wait")
	form.Set("do", "save")

	got := b.post("/policies/p/edit", form).want(http.StatusConflict)

	rows := got.rows()

	// A row says whose change it is: before, mine, theirs and by whom.
	for field, want := range map[string]string{
		"Limit":          "5/1m | 9/1m | 7/1m | both of you",
		"Path":           "nothing | /mine | nothing | you",
		"Description":    "nothing | nothing | theirs & <theirs> | the other",
		"Over the limit": "nothing | wait 2s | nothing | you",
		"For":            "ip | ip | ip | ",
	} {
		if rows[field] != want {
			t.Errorf("%s: the row is %q and not %q", field, rows[field], want)
		}
	}

	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Version != 2 {
		t.Errorf("the stale save made %v, %v", p, err)
	}

	again := got.form("/policies/p/edit")
	preview := b.post("/policies/p/edit", with(again, "do", "preview")).want(http.StatusOK)

	if v := preview.form("/policies/p/edit"); v.Get("path") != "/mine" || v.Get("quota") != "9" ||
		v.Get("version") != "2" {
		t.Errorf("the form for editing on shows %v", v)
	}

	b.post("/policies/p/edit", with(again, "do", "save")).goes("/policies/p?done=saved")
	p, err := w.Policy(t.Context(), w.admin, "p")
	if err != nil || p.Version != 3 || p.Limit.Quota != 9 || p.Match.Path != "/mine" || p.OnLimit != "wait 2s" ||
		p.Description != "" {
		t.Errorf("the policy that was saved on top is %+v, %v", p, err)
	}
}

// rows returns the cells of a table by its first column.
func (a *answer) rows() map[string]string {
	rows := map[string]string{}
	for n := range a.doc.Descendants() {
		if n.Data != "tr" {
			continue
		}

		var cells []string
		for c := range n.ChildNodes() {
			if c.Data == "td" || c.Data == "th" {
				cells = append(cells, words(c))
			}
		}
		rows[cells[0]] = strings.Join(cells[1:], " | ")
	}
	return rows
}

func with(form url.Values, name, value string) url.Values {
	form.Set(name, value)
	return form
}

func TestConflictDeletedPolicyCanBeRestored(t *testing.T) {
	w := newWorld(t)
	b, form := w.stale()
	w.must(w.DeletePolicy(t.Context(), w.admin, "p", 2))
	got := b.post("/policies/p/edit", with(with(form, "quota", "9"), "do", "save")).want(http.StatusConflict)
	b.post("/new", with(got.form("/new"), "do", "save")).goes("/policies/p?done=created")
	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Limit.Quota != 9 || p.Version != 4 {
		t.Errorf("the restored policy is %+v, %v", p, err)
	}
}

func TestConflictForEveryStaleChange(t *testing.T) {
	w := newWorld(t)
	b, _ := w.stale()
	// Each form is of version 1, and the policy has version 2.
	for path, form := range map[string]url.Values{
		"/policies/p/mode":     {"version": {"1"}, "mode": {"off"}, "confirm": {"yes"}},
		"/policies/p/delete":   {"version": {"1"}, "confirm": {"yes"}},
		"/policies/p/rollback": {"version": {"1"}, "to": {"1"}, "confirm": {"yes"}},
		"/policies/p/undo":     {"version": {"1"}},
	} {
		b.post(path, form).want(http.StatusConflict)
	}
	b.post("/policies/p/mode", url.Values{"version": {"1"}, "mode": {"shadow"}, "for": {"1"}}).want(http.StatusConflict)

	if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Version != 2 {
		t.Errorf("the policy is %+v, %v", p, err)
	}
}

func TestFormNameTakenIsAMistake(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	got := b.submit("/new", "/new", url.Values{"name": {"p"}, "apps": {"a"}, "quota": {"77"}}).
		want(http.StatusConflict)
	if got.mistake("name") == "" || got.form("/new").Get("quota") != "77" {
		t.Errorf("the form says %q and keeps %v", got.mistake("name"), got.form("/new"))
	}
}
