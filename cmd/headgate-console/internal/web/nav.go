package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// group is a group of pages in the navigation, which leads to the first of them.
type group struct {
	Words string
	Pages []entry
	Here  bool // the page that is shown is one of them
}

// entry is a page in the navigation.
type entry struct {
	Words, Path string
	Here        bool

	Manager bool   // only administrators may open it
	Also    string // the first segment of further pages under it, or ""
}

// Path returns where the group leads.
func (g group) Path() string { return g.Pages[0].Path }

// groups returns the navigation for a user, with the place of a page in it by the first segment of
// its path.
func groups(section string, manager bool) []group {
	list := slices.Clone(vocabulary.Groups)
	for i := range list {
		g := &list[i]
		g.Pages = slices.DeleteFunc(slices.Clone(g.Pages), func(e entry) bool { return e.Manager && !manager })

		for j := range g.Pages {
			e := &g.Pages[j]
			e.Here = e.Path == "/"+section || e.Also == section && section != ""
			g.Here = g.Here || e.Here
		}
	}
	return list
}

// link is one of several, of which a page shows one.
type link struct {
	Words, Link string
	Here        bool
}

// maxAppLinks is how many applications the head of a page offers.
const maxAppLinks = 50

// appCookie returns the name of the cookie of the application that was chosen last.
func (r *request) appCookie() string { return r.Cookie() + "-app" }

// chosenApp returns the application that the address names, or else the one that was chosen last,
// or "" for all. An application of the address is as it was typed: the service decides about it.
// One that was chosen last, and that the actor does not see, is none.
func (r *request) chosenApp() string {
	if r.req.URL.Query().Has("app") || r.part {
		return r.query("app")
	}
	if chosen := r.cookie(r.appCookie()); r.sees(chosen) {
		return chosen
	}
	return ""
}

// sees reports whether an application is one of those that the actor sees.
func (r *request) sees(name string) bool {
	return slices.ContainsFunc(r.apps, func(a service.App) bool { return a.Name == name })
}

// ownApps returns the names of the applications that the actor owns.
func (r *request) ownApps() (names []string) {
	for _, a := range r.apps {
		if a.Role == service.Owner {
			names = append(names, a.Name)
		}
	}
	return names
}

// addApps adds the choice of the application to a frame. A page whose address names one is the
// choice of it for the pages after it.
func (r *request) addApps(f *frame) {
	// A page that a policy brought to its application shows that one.
	f.App = r.chosenApp()
	if k, ok := f.Body.(*keys); ok && k.Own {
		f.App = k.App
	}

	// An address that names an application makes it the choice of the pages that follow.
	switch {
	case len(r.apps) == 1:
		f.App = r.apps[0].Name
	case f.App != "" && !r.sees(f.App):
		f.App = ""
	case r.choosesApp() && f.App == r.query("app"):
		r.setCookie(&http.Cookie{Name: r.appCookie(), Value: f.App, Expires: r.Clock().Add(service.DeviceLife)})
	}

	for _, a := range r.apps[:min(len(r.apps), maxAppLinks)] {
		f.Apps = append(f.Apps, link{a.Name, r.linkWithApp(a.Name), a.Name == f.App})
	}
	f.MoreApps = len(r.apps) > maxAppLinks
	f.AllApps = link{"All applications", r.linkWithApp(""), f.App == ""}
}

// choosesApp reports whether the address of a page chooses an application for the pages after it.
// That of a new policy names only where the policy is to be.
func (r *request) choosesApp() bool {
	return r.req.Method == http.MethodGet && r.req.URL.Query().Has("app") && r.req.URL.Path != "/new"
}

// linkWithApp returns the address of this page for another application. What was sent to this page,
// and which part of a list it shows, is left out.
func (r *request) linkWithApp(app string) string {
	if r.req.Method != http.MethodGet {
		return "/?" + url.Values{"app": {app}}.Encode()
	}
	u := r.req.URL.Query()
	for name := range u {
		if !slices.Contains([]string{"range", "mode", "sort", "changed", "refusing", "view", "key"}, name) {
			u.Del(name)
		}
	}
	u.Set("app", app)
	return "/" + strings.TrimLeft(r.req.URL.EscapedPath(), "/") + "?" + u.Encode()
}
