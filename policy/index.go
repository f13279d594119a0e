package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// Index finds the policies that apply to a request without trying each of them.
// It does not change and is safe for concurrent use.
type Index struct {
	anyHost node
	hosts   map[string]*node
	below   map[string]*node // by the name after "*."
	methods map[string]methods
	terms   terms                             // of the queries that policies ask for
	claims  func(core.Request) map[string]any // of a request
}

// methods is a set of methods; methods that no policy names share the first bit.
type methods uint64

const (
	unnamed    methods = 1
	allMethods methods = 1<<64 - 1
)

// NewIndex returns an index of the policies, which identifies them by their place
// in the list. It reads only their Match. The error joins a [*FieldError] for
// every mistake; more than 63 different methods are one. Claims are those of a request that
// implements interface{ Claims() map[string]any }, as Bindings.Claims returns them.
func NewIndex(policies []Policy) (*Index, error) {
	return newIndexOf(policies, claimsOf)
}

// newIndexOf is NewIndex for policies whose claims are known by a function.
func newIndexOf(policies []Policy, claims func(core.Request) map[string]any) (*Index, error) {
	x := newIndex(claims)
	var errs []error
	for i := range policies {
		errs = append(errs, x.add(i, &policies[i])...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return x, nil
}

// newIndex returns an index of no policies.
func newIndex(claims func(core.Request) map[string]any) *Index {
	return &Index{hosts: map[string]*node{}, below: map[string]*node{}, methods: map[string]methods{}, claims: claims}
}

func (x *Index) add(i int, p *Policy) (errs []error) {
	mistake := func(field string, err error) {
		if err != nil {
			errs = append(errs, &FieldError{p.Name, field, err})
		}
	}

	pattern, err := parsePattern(p.Match.Path)
	mistake("match.path", err)
	mistake("match.host", checkHost(p.Match.Host))
	mistake("match.methods", checkMethods(p.Match.Methods))
	mistake("match.except", checkExcept(p.Match.Except))
	mistake("match.headers", checkHeaders(p.Match.Headers))
	mistake("match.query", checkQuery(p.Match.Query))
	mistake("match.claims", checkClaims(p.Match.Claims))
	if len(errs) > 0 {
		return errs
	}

	// The methods get their bits last, so that no bit is spent on a policy with a mistake.
	set, err := x.methodSet(p.Match.Methods)
	mistake("match.methods", err)
	x.tree(p.Match.Host).add(pattern, entryAt{i, set, x.conditions(&p.Match)})
	return errs
}

// methodSet returns the set of the named methods. A new method gets the next bit.
func (x *Index) methodSet(names []string) (methods, error) {
	if len(names) == 0 {
		return allMethods, nil
	}

	var set methods
	for _, name := range names {
		name = canonicalMethod(name)
		if x.methods[name] == 0 {
			if len(x.methods) == 63 {
				return 0, fmt.Errorf("%q is the 64th method that policies name; at most 63 are possible", name)
			}
			x.methods[name] = unnamed << (len(x.methods) + 1)
		}
		set |= x.methods[name]
	}
	return set, nil
}

// tree returns the tree of the paths of policies for the host.
func (x *Index) tree(host string) *node {
	if host == "" {
		return &x.anyHost
	}

	name, wild := strings.CutPrefix(host, "*.")
	trees := x.hosts
	if wild {
		trees = x.below
	}

	if trees[name] == nil {
		trees[name] = &node{}
	}
	return trees[name]
}

// Select appends the places of the policies that apply to the request to into,
// each once, in ascending order.
func (x *Index) Select(r core.Request, into []int) []int {
	from := len(into)
	s := search{found: into}
	x.find(&s, r)
	found := s.found[from:]
	slices.Sort(found)
	return s.found[:from+len(slices.Compact(found))]
}

// meets reports whether any policy of the index applies to the request.
func (x *Index) meets(r core.Request) bool {
	s := search{any: true}
	x.find(&s, r)
	return s.hit
}

// find searches every tree that may hold policies for the request.
func (x *Index) find(s *search, r core.Request) {
	s.index, s.request, s.method = x, r, unnamed
	if m := x.methods[canonicalMethod(r.Method())]; m != 0 {
		s.method = m
	}

	s.addSpellings(r)
	s.searchTree(&x.anyHost)

	if len(x.hosts) == 0 && len(x.below) == 0 {
		return
	}
	for _, text := range r.Header("Host") { // more than one if readers may disagree
		host := keyfuncs.HostKey(text)
		s.searchTree(x.hosts[host])

		// A policy for all hosts below a name applies under any number of labels before the name.
		for len(x.below) > 0 && host != "" {
			_, host, _ = strings.Cut(host, ".")
			s.searchTree(x.below[host])
		}
	}
}

// search looks for one request.
type search struct {
	index   *Index
	request core.Request
	method  methods
	paths   [maxSpellings]spelling // that lead to one handler
	n       int                    // of paths
	found   []int
	facts   facts

	any bool // stop collecting: only hit is wanted, and found stays empty
	hit bool // some policy was found
}

// maxSpellings is the number of spellings of one path: as it is now, as the client sent it,
// and with encoded slashes apart, each also cleaned of dots, and both without parameters; and
// the route.
const maxSpellings = 3*4 + 1

// spelling is a path, or a prefix of all paths that a router serves by one pattern.
type spelling struct {
	path   string
	prefix bool
}

// rawPathed is a request that also has the path as the client encoded it. RawPath may
// return "" where all routers read it as Path does.
type rawPathed interface{ RawPath() string }

// sentPathed is a request that also has the path that the client sent. SentPath may return ""
// where that is Path.
type sentPathed interface{ SentPath() string }

// prefixRouted is a request whose route may be the prefix of a middleware instead of
// the pattern of a handler.
type prefixRouted interface{ RouteMayBePrefix() bool }

// addSpellings collects the spellings of the path.
func (s *search) addSpellings(r core.Request) {
	asked := r.Path()
	s.addPath(asked)

	if r, ok := r.(rawPathed); ok {
		if text := splitAsSent(r.RawPath()); text != "" {
			s.addPath(text)
		}
	}

	// A proxy or a middleware may have rewritten the path since.
	if r, ok := r.(sentPathed); ok {
		if text := r.SentPath(); text != "" {
			s.addPath(text)
		}
	}

	// A route may begin with a method and a host. It counts only where it says more than the path.
	route := r.Route()
	if i := strings.IndexByte(route, '/'); i >= 0 && route[i:] != asked {
		route, prefix := cutCatchAll(route[i:])
		if r, ok := r.(prefixRouted); ok && r.RouteMayBePrefix() {
			prefix = true
		}
		s.add(spelling{fold(route), prefix})
	}
}

// addPath adds a path as it came and cleaned of dots, and both without parameters.
func (s *search) addPath(text string) {
	s.addCleaned(text)
	if strings.Contains(text, ";") {
		s.addCleaned(withoutParameters(text))
	}
}

func (s *search) addCleaned(text string) {
	s.add(spelling{path: fold(text)})
	if strings.Contains(text, "/.") {
		s.add(spelling{path: fold(path.Clean(text))})
	}
}

// withoutParameters returns a path whose segments end at their first semicolon, as servers of
// Java servlets read it: /x/..;/login is /login there.
func withoutParameters(text string) string {
	segments := strings.Split(text, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return strings.Join(segments, "/")
}

func (s *search) add(p spelling) {
	s.paths[s.n] = p
	s.n++
}

// splitAsSent decodes a path whose encoded slashes some routers do not take for
// slashes. It makes them bytes 0, so that a segment with one meets no literal but any
// wildcard. It returns "" if there is no such slash.
func splitAsSent(raw string) string {
	if !strings.Contains(raw, "%2F") && !strings.Contains(raw, "%2f") {
		return ""
	}
	text, err := url.PathUnescape(slashes.Replace(raw))
	if err != nil {
		return ""
	}
	return text
}

var slashes = strings.NewReplacer("%2F", "\x00", "%2f", "\x00")

// cutCatchAll cuts a route before the part that stands for any number of segments. It
// knows "/" and "{rest...}" at the end, as in net/http, and "*" and "+", as in other
// routers.
func cutCatchAll(route string) (before string, catches bool) {
	if text, exact := strings.CutSuffix(route, "/{$}"); exact {
		return text, false
	}

	if i := strings.IndexAny(route, "*+"); i >= 0 {
		route = route[:i]
	} else if !strings.HasSuffix(route, "/") && !strings.HasSuffix(route, "...}") {
		return route, false
	}
	return route[:strings.LastIndexByte(route, '/')+1], true
}

func (s *search) searchTree(tree *node) {
	if tree == nil {
		return
	}
	for i := range s.paths[:s.n] {
		s.walk(tree, s.paths[i].path, s.paths[i].prefix)
	}
}

// walk collects the policies for a path under the node. Each node has one parent,
// so one path meets no node twice. A policy applies to a prefix if it covers all that is
// below it.
func (s *search) walk(n *node, path string, prefix bool) {
	s.collect(n.subtree)

	// Slashes that are doubled, or at the end, do not count.
	for path != "" && path[0] == '/' {
		path = path[1:]
	}
	if path == "" {
		if !prefix {
			s.collect(n.here)
		}
		return
	}

	segment, below := path, ""
	if i := strings.IndexByte(path, '/'); i >= 0 {
		segment, below = path[:i], path[i:]
	}

	// Both ways apply: a literal does not take precedence over a wildcard, as all policies that
	// match are decided together.
	if next := n.literals[segment]; next != nil {
		s.walk(next, below, prefix)
	}
	if n.wild != nil {
		s.walk(n.wild, below, prefix)
	}
}

func (s *search) collect(places []entryAt) {
	for i := range places {
		if places[i].methods&s.method == 0 {
			continue
		}
		if c := places[i].conditions; c != nil && !s.met(c) {
			continue
		}
		s.hit = true
		if !s.any {
			s.found = append(s.found, places[i].index)
		}
	}
}

// node is a place in a tree of path segments.
type node struct {
	literals map[string]*node
	wild     *node
	here     []entryAt // of patterns that end here
	subtree  []entryAt // of patterns that cover everything below
}

// entryAt is a policy in the list.
type entryAt struct {
	index      int
	methods    methods
	conditions *conditions // or nil
}

func (n *node) add(p pattern, at entryAt) {
	for _, segment := range p.segments {
		n = n.child(segment)
	}
	if p.subtree {
		n.subtree = append(n.subtree, at)
	} else {
		n.here = append(n.here, at)
	}
}

// child returns the node for a segment and creates it if there is none.
func (n *node) child(segment string) *node {
	if segment == "" {
		if n.wild == nil {
			n.wild = &node{}
		}
		return n.wild
	}

	if n.literals[segment] == nil {
		if n.literals == nil {
			n.literals = map[string]*node{}
		}
		n.literals[segment] = &node{}
	}
	return n.literals[segment]
}
