package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

//go:embed look
var look embed.FS

var templates = template.Must(template.ParseFS(look, "look/*.html"))

// index is the page that lists all pages, in groups.
const index = "docs/README.md"

// A site is what is read of a repository.
type site struct {
	root string // the folder of the repository
	base string // the URL of the site, with a slash at its end

	groups []group
	pages  []*page          // in the order of the index, which is the last
	byPath map[string]*page // by their paths in the repository
	assets map[string]bool  // pictures that pages show
}

// A group is a part of the navigation.
type group struct {
	Title   string
	Entries []entry
}

// An entry leads to a page, or to the playground.
type entry struct {
	Title, Says string
	page        *page // nil for the playground
}

// playground is where the index has the program of it.
const playground = "docs/site/playground"

// read reads the index, and all pages that it lists. Its error names every mistake.
func read(root, base string) (*site, error) {
	s := &site{root: root, base: base, byPath: map[string]*page{}, assets: map[string]bool{}}
	first, err := s.load(index)
	if err != nil {
		return nil, err
	}

	// A heading begins a group, and the list below it has the pages.
	var errs []error
	for n := first.root.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				s.groups = append(s.groups, group{Title: first.textOf(n)})
			}
		case *ast.List:
			errs = append(errs, s.list(first, n))
		}
	}
	s.pages = append(s.pages, first)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	// Links are checked when all pages are known.
	for _, p := range s.pages {
		errs = append(errs, s.link(p))
	}
	return s, errors.Join(errs...)
}

// list reads the pages of a group. An item is a link, a colon and one line.
func (s *site) list(first *page, list *ast.List) error {
	var errs []error

	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		text := first.textOf(item)
		link, ok := item.FirstChild().FirstChild().(*ast.Link)

		title, says, told := strings.Cut(text, ": ")
		if !ok || !told || len(s.groups) == 0 {
			errs = append(errs, fmt.Errorf("%s: %q is no item of a group with a link, a colon and a line", index, text))
			continue
		}

		// The playground is no page, and made by another program.
		e := entry{Title: title, Says: says}
		if to := path.Join(path.Dir(index), string(link.Destination)); to != playground {
			p, err := s.load(to)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			e.page = p
			s.pages = append(s.pages, p)
		}

		last := &s.groups[len(s.groups)-1]
		last.Entries = append(last.Entries, e)
	}
	return errors.Join(errs...)
}

// load reads a page.
func (s *site) load(name string) (*page, error) {
	text, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return nil, err
	}
	p, err := parse(name, text)
	s.byPath[name] = p
	return p, err
}

// write writes all files of the site into a folder.
func (s *site) write(dir string) error {
	out := folder(dir)
	for i, p := range s.pages {
		body, err := p.html()
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}

		// The pages before and after are those of the index, which itself has none.
		v := s.view(p)
		v.Body, v.Rest = cutTitle(body)
		if i > 0 && i < len(s.pages)-1 {
			v.Before = &step{rel(p.out, s.pages[i-1].out), s.pages[i-1].title}
		}

		if i < len(s.pages)-2 {
			v.After = &step{rel(p.out, s.pages[i+1].out), s.pages[i+1].title}
		}

		if err := out.render(p.out, "page.html", v); err != nil {
			return err
		}
	}

	return errors.Join(s.writeRest(out), s.writeTexts(out))
}

// writeRest writes what pages need, and the page of errors, which may stand for any address and so
// has whole ones.
func (s *site) writeRest(out folder) error {
	errs := []error{out.render("404.html", "404.html", s.view(&page{out: "404.html"}))}
	for _, name := range []string{"site.css", "search.js"} {
		text, err := look.ReadFile("look/" + name)
		errs = append(errs, err, out.file(name, text))
	}

	for name := range s.assets {
		text, err := os.ReadFile(filepath.Join(s.root, name))
		errs = append(errs, err, out.file(name, text))
	}

	icon, err := os.ReadFile(filepath.Join(s.root, playground, "page", "icon.svg"))
	errs = append(errs, err, out.file("icon.svg", icon))

	list, err := json.Marshal(s.search())
	return errors.Join(append(errs, err, out.file("search.json", list))...)
}

// A view is what the template shows.
type view struct {
	Title, Summary string
	Root           string // leads to the folder of the site, with a slash at its end
	Index, Source  string
	Body, Rest     template.HTML
	Contents       []heading
	Groups         []viewGroup
	Before, After  *step
}

// A step leads to a page.
type step struct{ To, Title string }

type viewGroup struct {
	Title   string
	Entries []viewEntry
}

type viewEntry struct {
	To, Title string
	Current   bool
}

// view returns what all pages show, from the place of one.
func (s *site) view(p *page) view {
	v := view{Title: p.title, Summary: p.summary, Contents: p.contents, Source: source + p.path}

	// The page of errors stands for any address, so its links are whole.
	v.Root = strings.TrimSuffix(rel(p.out, "index.html"), "index.html")
	if p.path == "" {
		v.Root = s.base
	}

	v.Index = v.Root + outOf(index)
	for _, g := range s.groups {

		vg := viewGroup{Title: g.Title}
		for _, e := range g.Entries {
			to := "playground/index.html"
			if e.page != nil {
				to = e.page.out
			}
			vg.Entries = append(vg.Entries, viewEntry{v.Root + to, e.Title, e.page == p})
		}
		v.Groups = append(v.Groups, vg)
	}
	return v
}

// rel returns the way from one file of the site to another.
func rel(from, to string) string {
	way, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(err) // both are within the site
	}
	return filepath.ToSlash(way)
}

// outOf returns the file of a page in the site. Folders stay, and so pictures stay where they are.
func outOf(name string) string {
	if dir, ok := strings.CutSuffix(name, "README.md"); ok {
		return dir + "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// A folder is written to.
type folder string

// file writes a file and makes its folder.
func (f folder) file(name string, text []byte) error {
	to := filepath.Join(string(f), filepath.FromSlash(name))
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
}

// render writes a part of the template.
func (f folder) render(name, part string, v view) error {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, part, v); err != nil {
		return err
	}
	return f.file(name, []byte(b.String()))
}

// paths returns the paths of all pages in the repository, in order.
func (s *site) paths() []string {
	var all []string
	for _, p := range s.pages {
		all = append(all, p.path)
	}
	slices.Sort(all)
	return all
}
