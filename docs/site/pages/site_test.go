package main

import (
	"encoding/json"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// made is the site of this repository, without the playground, and its folder.
func made(t *testing.T) (*site, string) {
	t.Helper()
	root, err := rootOf(".")
	if err != nil {
		t.Fatal(err)
	}
	s, err := read(root, "/docs/")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// The index has every page of docs, and of the programs.
func TestIndexHasAllPages(t *testing.T) {
	s, _ := made(t)
	var want []string
	err := filepath.WalkDir(s.root, func(name string, d fs.DirEntry, err error) error {
		// Folders of tools, and what npm brings, are not ours.
		foreign := err == nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules")
		if foreign && name != s.root {
			return fs.SkipDir
		}

		rel, _ := filepath.Rel(s.root, name)
		rel = filepath.ToSlash(rel)
		if path.Ext(rel) == ".md" && !strings.Contains(rel, "/testdata/") && rel != "CODE_OF_CONDUCT.md" {
			want = append(want, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(want)
	if got := s.paths(); !slices.Equal(got, want) {
		t.Errorf("%s lists\n%q, and there are\n%q", index, got, want)
	}
}

var (
	linked = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	ids    = regexp.MustCompile(` id="([^"]*)"`)
)

// Every link of every file leads to a file, and to an element of it; no element has the id of
// another.
func TestLinksLeadSomewhere(t *testing.T) {
	_, dir := made(t)
	texts, anchors := map[string]string{}, map[string][]string{}
	for _, name := range filesIn(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		texts[name] = string(text)
		for _, m := range ids.FindAllStringSubmatch(string(text), -1) {
			if id := html.UnescapeString(m[1]); path.Ext(name) == ".html" && slices.Contains(anchors[name], id) {
				t.Errorf("%s has %q twice", name, id)
			} else {
				anchors[name] = append(anchors[name], id)
			}
		}
	}

	// The playground is not made here, and others' sites are not asked.
	checked := 0
	for name, text := range texts {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, m := range linked.FindAllStringSubmatch(text, -1) {

			to, anchor := targetIn(t, name, html.UnescapeString(m[1]))
			if strings.HasPrefix(to, "playground/") || strings.Contains(to, ":") {
				continue
			}

			checked++
			if _, is := texts[to]; !is || anchor != "" && !slices.Contains(anchors[to], anchor) {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
		}
	}

	// Each of more than 40 pages has the navigation alone.
	if checked < 40*40 {
		t.Errorf("only %d links were found", checked)
	}
}

// filesIn returns the names of all files in a folder.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, name)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// targetIn returns the file of the site that a link of another leads to.
func targetIn(t *testing.T, from, link string) (to, anchor string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case u.Host != "":
		return link, ""
	case u.Path == "":
		return from, u.Fragment
	}

	// The page of errors has whole addresses.
	if whole, ok := strings.CutPrefix(u.Path, "/docs/"); ok {
		return whole, u.Fragment
	}
	return path.Join(path.Dir(from), u.Path), u.Fragment
}

// A page has one title, no style and no script of its own, and its text is escaped.
func TestPagesAreSafe(t *testing.T) {
	_, dir := made(t)
	for _, name := range filesIn(t, dir) {
		if path.Ext(name) != ".html" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		page := string(text)
		if strings.Count(page, "<h1") != 1 || strings.Count(page, "<script") != 1 || strings.Contains(page, "<style") ||
			strings.Contains(page, " style=") || regexp.MustCompile(` on[a-z]+="`).MatchString(page) {
			t.Errorf("%s has more than one title or script, or a style", name)
		}
	}
}

// repository makes a folder with an index and other files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		if err := folder(root).file(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestEveryMistakeIsNamed(t *testing.T) {
	for _, c := range []struct{ is, index, page, want string }{
		{"an item without a line", "- [A](a.md)\n", "# A\n", `docs/README.md: "A" is no item of a group with a link, a colon and a line`},
		{"an item without a link", "- A: for all.\n", "# A\n", `docs/README.md: "A: for all." is no item of a group with a link, a colon and a line`},
		{"a page without a title", "- [A](a.md): x.\n", "A\n", `docs/a.md has no title`},
		{"several mistakes", "- [A](a.md): x.\n", "# A\n<b>x</b>\n\n[x](b.md), [y](#c), [z](javascript:d)\n\n![u](e.svg)\n",
			"docs/a.md: the HTML \"<b>\" is neither <br> nor a comment\n" +
				"docs/a.md: the HTML \"</b>\" is neither <br> nor a comment\n" +
				"docs/a.md: \"b.md\" leads to no file\n" +
				"docs/a.md: no heading of docs/a.md has the anchor \"c\"\n" +
				"docs/a.md: \"javascript:d\" leads to no file\n" +
				"docs/a.md: open ROOT/docs/e.svg: no such file or directory"},
	} {

		// All are in one error, in the order of the page.
		root := repository(t, map[string]string{"docs/README.md": "# Docs\n## Start\n" + c.index, "docs/a.md": c.page})
		_, err := read(root, "/")
		if err == nil || strings.ReplaceAll(err.Error(), root, "ROOT") != c.want {
			t.Errorf("%s: %v, want\n%s", c.is, err, c.want)
		}
	}
}

const aPage = "# A & b\n\nSee [code](../core/x.go#L3), [it](#take), [the index](README.md), and [all](../docs).\n\n" +
	"## `Take`\n\n`<script>` and &lt;i&gt; are text.\n\n```go\nif a < b { // \"quoted\"\n```\n\n" +
	"| | n |\n|---|--:|\n| a<br>b | 1 |\n\n## Take\n\n![d](d.svg)\n"

func TestPage(t *testing.T) {
	root := repository(t, map[string]string{
		"docs/README.md": "# Docs\n\n## Start\n\n- [A](a.md): for all: x.\n", "docs/a.md": aPage, "core/x.go": "",
		"docs/d.svg": `<svg xmlns="x" width="7" height="5"></svg>`, playground + "/page/icon.svg": "<svg/>",
	})
	s, err := read(root, "https://127.0.0.1/x/")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(root + "/out"); err != nil {
		t.Fatal(err)
	}

	// Each part of the page has its form.
	text, err := os.ReadFile(root + "/out/docs/a.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<title>A &amp; b · headgate</title>`, `<meta name="description" content="See code, it, the index, and all.">`,
		`<a href="https://github.com/headgate/headgate/blob/main/core/x.go#L3">`, `<a href="#take">it</a>`, `<a href="index.html">`,
		`<a href="https://github.com/headgate/headgate/tree/main/docs">`,
		`<h2 id="take"><code class="word">Take</code> <a class="anchor" href="#take"`, `<h2 id="take-1">Take `,
		`<code class="word">&lt;script&gt;</code> and &lt;i&gt; are text.`, `if a &lt; b { // &quot;quoted&quot;`,
		`<div class="scroll" tabindex="0" role="region" aria-label="Table 1"><table>`, `<td></td>`,
		`<th scope="row">a<br>b</th>`, `<th class="number">n</th>`, `<td class="number">1</td>`,
		`<img src="d.svg" alt="d" loading="lazy" width="7" height="5">`, `<link rel="stylesheet" href="../site.css">`,
		`<li><a href="../docs/a.html" aria-current="page">A</a></li>`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %s", want)
		}
	}

	// Programs get the page as Markdown, with links that lead somewhere.
	plain, err := os.ReadFile(root + "/out/docs/a.md")
	want := strings.NewReplacer("../core/x.go#L3", source+"core/x.go#L3", "../docs)", tree+"docs)").Replace(aPage)
	if err != nil || string(plain) != want {
		t.Errorf("%s, %v", plain, err)
	}
}

func TestTextsForPrograms(t *testing.T) {
	s, dir := made(t)
	list, err := os.ReadFile(dir + "/llms.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(list), "# headgate\n\n> headgate limits") {
		t.Errorf("llms.txt begins with %.60q", list)
	}

	// Each line leads to a file.
	found := regexp.MustCompile(`(?m)^- \[[^\]]+\]\(/docs/([^)]+)\): .+\.$`).FindAllStringSubmatch(string(list), -1)
	for _, m := range found {
		if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil && m[1] != "playground/" {
			t.Error(err)
		}
	}

	// The index is no line of itself, and the playground is no page.
	if len(found) != len(s.pages) {
		t.Errorf("%d lines for %d pages", len(found), len(s.pages))
	}

	full, err := os.ReadFile(dir + "/llms-full.txt")
	if titles := strings.Count(string(full), "-->\n\n# "); err != nil || titles != len(s.pages)-1 {
		t.Errorf("llms-full.txt has %d pages of %d, %v", titles, len(s.pages)-1, err)
	}
}

// What the search has of each section leads to it, and a word of its text is there once.
func TestSearch(t *testing.T) {
	_, dir := made(t)
	text, err := os.ReadFile(dir + "/search.json")
	if err != nil {
		t.Fatal(err)
	}

	var all []hit
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}

	at := slices.IndexFunc(all, func(h hit) bool { return h.URL == "docs/keys.html#cors" })
	if at < 0 {
		t.Fatal("a section is missing")
	}

	// What it begins with need not be among its words.
	h := all[at]
	if h.Page != "Keys and proxies" || h.Section != "CORS" || !strings.HasPrefix(h.Says, "Put the CORS middleware around") ||
		!slices.Contains(strings.Fields(h.Words), "preflight") || strings.Contains(h.Words, "middleware") {
		t.Errorf("%+v", h)
	}

	// A browser loads all of it.
	if len(text) > 300_000 || len(all) < 300 {
		t.Errorf("%d bytes for %d sections", len(text), len(all))
	}
}

func TestPageOfErrors(t *testing.T) {
	_, dir := made(t)
	for path, want := range map[string]int{
		"/docs/limits.html": 200, "/": 200, "/docs/nowhere.html": 404, "/docs/../../x": 404,
	} {
		answer := httptest.NewRecorder()
		files(dir).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want || !strings.Contains(answer.Body.String(), `class="brand"`) {
			t.Errorf("%s: %d, want %d", path, answer.Code, want)
		}
	}
}

func TestURL(t *testing.T) {
	for _, bad := range []string{"", "docs", "https://127.0.0.1", "/a?b", "/a#b", ":"} {
		if err := run(t.TempDir(), bad); err == nil || !strings.HasPrefix(err.Error(), "-url: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
