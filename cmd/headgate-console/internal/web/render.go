package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

//go:embed templates/*.html
var sources embed.FS

// parsePages reads all templates, each with all of its parts. A template whose name begins with "_"
// is part of the others.
func parsePages() (map[string]*template.Template, error) {
	names, err := fs.Glob(sources, "templates/*.html")
	if err != nil {
		return nil, err
	}

	pages := map[string]*template.Template{}
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		if base[0] == '_' {
			continue
		}

		// Every page has its own copy of the shared parts, so that it may define what the layout
		// leaves open.
		t, err := template.New("_layout.html").Funcs(helpers()).ParseFS(sources, "templates/_*.html", name)
		if err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
		pages[base] = t
	}

	return pages, nil
}

// parsedPages is parsePages, once for all sites, as the templates do not change.
var parsedPages = sync.OnceValues(parsePages)

// frame is the layout around a page.
type frame struct {
	Title   string
	Section string // the first segment of the path
	User    string
	Ready   bool // is logged in and has nothing to do first
	Groups  []group
	Refresh bool // the browser asks again by itself
	Done    string
	Undo    *undo
	Banner  *banner
	Unable  unable
	About   string // the policy that the page is about, or ""
	Full    bool   // the disk is full

	Patterned bool // areas have patterns beside their colours

	Body any

	App      string // that is chosen, or "" for all
	Apps     []link // to choose from
	AllApps  link
	MoreApps bool // there are more than the links
}

// show answers with a page.
func (r *request) show(status int, name, title string, body any) error {
	f := r.frame(title)
	f.Body = body

	// Only a notice of what was done can offer to take it back.
	if f.Ready && f.Done != "" {
		r.offerUndo(&f)
	}

	if f.Ready && status < http.StatusInternalServerError {
		r.addApps(&f)
	}
	r.addBanner(&f, status)
	r.addUnable(&f, status)

	if n, ok := body.(interface{ notice() string }); ok {
		f.Done = cmp.Or(n.notice(), f.Done)
	}

	return r.execute(status, name, "_layout.html", f)
}

// fragment answers with a part of a page.
func (r *request) fragment(name, part string, body any) error {
	return r.execute(http.StatusOK, name, part, body)
}

// execute answers with the output of a template, or returns its error before it
// writes anything.
func (r *request) execute(status int, name, part string, data any) error {
	var b bytes.Buffer
	if err := r.pages[name].ExecuteTemplate(&b, part, data); err != nil {
		r.Logger.ErrorContext(r.req.Context(), "a template failed", "template", name, "error", err)
		http.Error(r.w, "Something went wrong. See the log of the console.", http.StatusInternalServerError)
		return nil
	}
	r.send(status, b.Bytes())
	return nil
}

func (r *request) frame(title string) frame {
	section, _, _ := strings.Cut(strings.TrimPrefix(r.req.URL.Path, "/"), "/")
	return frame{
		Title: title, Section: section, User: r.access.User, Groups: groups(section, r.access.CanManage()),
		Ready: r.ready(),
		Done:  vocabulary.Done[r.query("done")], Full: r.access.User != "" && r.Service.Full(),
		Patterned: r.patterned(), Refresh: r.reloads,
	}
}

// helpers are the functions that templates may call.
func helpers() template.FuncMap {
	return template.FuncMap{
		// Instants, as text.
		"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock":   func(t time.Time) string { return t.UTC().Format("2 Jan 15:04") },
		"second":  func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"known":   func(t time.Time) bool { return !t.IsZero() },

		// Words for people.
		"digits": digits,
		"count":  func(n int) string { return digits(int64(n)) },
		"join":   strings.Join,
		"label":  label,
		"match":  matchWords,
		"mode":   modeWords,
		"shown":  shown,
		"whom":   forWhom,
		"words":  onLimitWords,

		// Parts of pages.
		"at":       at,
		"choices":  choices,
		"menu":     func(row keyRow, here string) *keyMenu { return &keyMenu{row, here} },
		"odd":      func(n int) bool { return n%2 == 1 },
		"owner":    func(r service.Role) bool { return r == service.Owner },
		"reversed": reversed,
		"segment":  url.PathEscape,
	}
}

// reversed returns the bars with the last one first.
func reversed(list []bar) []bar {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// digits returns a number with its digits in groups of three: 1,234,567.
func digits(n int64) string { return service.Digits(n) }

// plural returns a number of things with their word for one or for more.
func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return digits(n) + " " + more
}

// firstOf joins the first names of a list, most at most, and says how many more there are.
func firstOf(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += " and " + digits(int64(more)) + " more"
	}
	return text
}

// remark holds the mistakes of a field, to be shown beside it.
type remark struct {
	Field string
	Texts []string
}

// at returns the mistakes of a field.
func at(m mistakes, field string) remark { return remark{field, m[field]} }

// label returns the name of a field for people.
func label(field string) string { return cmp.Or(vocabulary.Labels[field], field) }

// modeWords returns the words for a mode as it is written down.
func modeWords(written string) string {
	var m policy.Mode
	if err := m.UnmarshalText([]byte(written)); err != nil {
		return written
	}
	return service.ModeWords(m)
}

// shown returns the value of a field for people.
func shown(field, value string) string {
	if field == "mode" {
		return modeWords(value)
	}
	return value
}

// send answers with a page. An answer to a GET has a tag, with which a script asks for the
// next one.
func (r *request) send(status int, page []byte) {
	h := r.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")

	if r.req.Method == http.MethodGet && status == http.StatusOK {
		sum := sha256.Sum256(page)
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)

		// A page that reloads itself often gets what it has already, and need not be sent again.
		if r.req.Header.Get("If-None-Match") == tag {
			h.Del("Content-Type")
			r.w.WriteHeader(http.StatusNotModified)
			return
		}
	}

	// The client may receive the page slowly.
	if r.done != nil {
		r.done()
	}
	r.w.WriteHeader(status)
	_, _ = r.w.Write(page) // the client may have gone
}
