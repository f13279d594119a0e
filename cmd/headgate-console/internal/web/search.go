package web

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// results is the page of a search in all applications.
type results struct {
	Text     string
	Policies []result // those whose names begin with the text come first
	Total    int64    // with those that are not shown
	All      string   // the address of the list of all of them
	Key      string   // the address that looks the text up as a key
	Mistakes mistakes
}

// result is a policy that was found.
type result struct {
	Name, Requests, Apps string
}

// maxResults is how many policies a search shows.
const maxResults = 20

func searchPage(r *request) error {
	s := results{Text: strings.TrimSpace(r.query("q"))}
	if s.Text == "" {
		return r.show(http.StatusOK, "search", "Search", s)
	}

	q := service.Query{Search: s.Text, PerPage: service.MaxPerPage}
	page, err := r.Service.Policies(r.req.Context(), r.actor, q)
	if s.Mistakes = mistakesOf(err); s.Mistakes != nil {
		return r.show(http.StatusUnprocessableEntity, "search", "Search", s)
	}
	if err != nil {
		return err
	}

	// One of exactly that name comes first, also where more are found than are read.
	exact, err := r.Service.Policy(r.req.Context(), r.actor, s.Text)
	switch {
	case err == nil:
		same := func(p policy.Policy) bool { return p.Name == exact.Name }
		page.Policies = slices.Insert(slices.DeleteFunc(page.Policies, same), 0, exact)
	case !errors.Is(err, service.ErrNotFound):
		return err
	}

	// A policy that is called so comes before one whose path or description has the text.
	slices.SortStableFunc(page.Policies, func(a, b policy.Policy) int {
		return cmp.Compare(nearness(a, s.Text), nearness(b, s.Text))
	})
	for _, p := range page.Policies[:min(len(page.Policies), maxResults)] {
		s.Policies = append(s.Policies, result{p.Name, matchWords(p.Match), strings.Join(p.Apps, ", ")})
	}

	s.Total = page.Total
	s.All = "/policies?" + url.Values{"app": {""}, "search": {s.Text}}.Encode()
	s.Key = "/keys?" + url.Values{"key": {s.Text}}.Encode()
	return r.show(http.StatusOK, "search", "Search", s)
}

// nearness returns how well a policy answers a search: the least is best.
func nearness(p policy.Policy, text string) int {
	name, text := strings.ToLower(p.Name), strings.ToLower(text)
	switch {
	case name == text:
		return -1
	case strings.HasPrefix(name, text):
		return 0
	case strings.Contains(name, text):
		return 1
	case strings.Contains(strings.ToLower(p.Match.Path), text):
		return 2
	}
	return 3
}
