package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"html/template"
	"image/png"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	ghtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// source and tree are where the files and the folders of the repository can be read.
const (
	source = "https://github.com/headgate/headgate/blob/main/"
	tree   = "https://github.com/headgate/headgate/tree/main/"
)

// markdown reads and writes pages. It writes HTML as it is, but [site.link] refuses all that is no
// comment and no end of a line, and all links to other schemes than those of the web.
var markdown = goldmark.New(goldmark.WithRendererOptions(ghtml.WithUnsafe()), goldmark.WithExtensions(
	extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)), extension.Strikethrough))

// A page is a file of Markdown.
type page struct {
	path string // in the repository
	out  string // in the site

	text []byte
	root ast.Node

	title, summary string
	anchors        map[string]bool
	contents       []heading
	sections       []section
}

// A heading is a line of the contents of a page.
type heading struct {
	Level     int
	ID, Title string
}

// A section is what stands under a heading, for the search.
type section struct {
	heading
	text string // without blocks of code
}

// parse reads a page and gives its headings their anchors.
func parse(name string, source []byte) (*page, error) {
	p := &page{path: name, out: outOf(name), text: source, anchors: map[string]bool{}}
	p.root = markdown.Parser().Parse(text.NewReader(source))

	// The text of a paragraph and of a table belongs to the heading above it.
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			p.head(n)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
		default:
			said := p.textOf(n)
			if len(p.sections) > 0 {
				p.sections[len(p.sections)-1].text += said + " "
			}
			if p.summary == "" && n.Kind() == ast.KindParagraph && said != "" {
				p.summary = shorten(said, 160)
			}
		}
	}

	if p.title == "" {
		return p, fmt.Errorf("%s has no title", name)
	}
	return p, nil
}

// head gives a heading its anchor, and notes it.
func (p *page) head(n *ast.Heading) {
	h := heading{n.Level, "", p.textOf(n)}
	h.ID = p.anchorOf(h.Title)

	n.SetAttributeString("id", []byte(h.ID))
	p.sections = append(p.sections, section{heading: h})

	switch n.Level {
	case 1:
		p.title = h.Title
	case 2, 3:
		p.contents = append(p.contents, h)
	}
}

// anchorOf returns the anchor that GitHub gives to a heading: in lower case, without punctuation,
// and with a number if another has it.
func (p *page) anchorOf(title string) string {
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)

	// The second of two equal ones gets a number.
	free := anchor
	for n := 1; p.anchors[free]; n++ {
		free = anchor + "-" + strconv.Itoa(n)
	}
	p.anchors[free] = true
	return free
}

// textOf returns the text in a node, in one line.
func (p *page) textOf(n ast.Node) string {
	var b strings.Builder
	ast.Walk(n, func(n ast.Node, in bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			return ast.WalkSkipChildren, nil

		case *ast.Text:
			if in {
				b.Write(n.Segment.Value(p.text))

				// A line of the source ends where a space is meant.
				if n.SoftLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.AutoLink:
			if in {
				b.Write(n.URL(p.text))
			}
		default:
			// The words of two cells or items stay apart.
			if !in && n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})

	return strings.Join(strings.Fields(html.UnescapeString(b.String())), " ")
}

// shorten returns the text, at most so many bytes of it, and whole words.
func shorten(said string, most int) string {
	if len(said) <= most {
		return said
	}
	return said[:strings.LastIndexByte(said[:most], ' ')] + " …"
}

// link turns the links of a page to where they lead from the site, and returns every mistake.
func (s *site) link(p *page) error {
	var errs []error
	ast.Walk(p.root, func(n ast.Node, in bool) (ast.WalkStatus, error) {
		if !in {
			return ast.WalkContinue, nil
		}

		switch n := n.(type) {
		case *ast.Link:
			to, err := s.target(p, string(n.Destination))
			n.Destination = []byte(to)
			errs = append(errs, err)
		case *ast.Image:
			errs = append(errs, s.picture(p, n))
		case *ast.AutoLink:
			_, err := s.target(p, string(n.URL(p.text)))
			errs = append(errs, err)
		case *ast.RawHTML:
			errs = append(errs, p.checkHTML(n.Segments))
		case *ast.HTMLBlock:
			errs = append(errs, p.checkHTML(n.Lines()))
		case *east.TableCell:
			if n.Alignment == east.AlignRight {
				n.SetAttributeString("class", []byte("number"))
			}
		}
		return ast.WalkContinue, nil
	})
	return errors.Join(errs...)
}

// plainHTML is the HTML that a page may have.
var plainHTML = regexp.MustCompile(`^(<br>|<!-- [a-z ]+ -->)$`)

func (p *page) checkHTML(lines *text.Segments) error {
	if said := strings.TrimSpace(string(lines.Value(p.text))); !plainHTML.MatchString(said) {
		return fmt.Errorf("%s: the HTML %q is neither <br> nor a comment", p.path, said)
	}
	return nil
}

// target returns where a link of a page leads.
func (s *site) target(p *page, link string) (string, error) {
	to, anchor, has := strings.Cut(link, "#")
	if strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "http://") {
		return link, nil
	}

	// A link without a file stays on the page.
	name := p.path
	if to != "" {
		name = path.Join(path.Dir(p.path), to)
	}

	// What is no page of the site is read in the repository.
	other := s.byPath[name]
	switch {
	case other != nil && has && !other.anchors[anchor]:
		return "", fmt.Errorf("%s: no heading of %s has the anchor %q", p.path, name, anchor)
	case other == p:
		return "#" + anchor, nil
	case other != nil && has:
		return rel(p.out, other.out) + "#" + anchor, nil
	case other != nil:
		return rel(p.out, other.out), nil
	case name == playground:
		return rel(p.out, "playground/index.html"), nil
	}

	address, err := s.address(name)
	if err != nil {
		return "", fmt.Errorf("%s: %q leads to no file", p.path, link)
	}
	if has {
		address += "#" + anchor
	}
	return address, nil
}

// address returns where a file or a folder of the repository can be read.
func (s *site) address(name string) (string, error) {
	info, err := os.Stat(filepath.Join(s.root, name))
	if err == nil && info.IsDir() {
		return tree + name, nil
	}
	return source + name, err
}

// size finds the width and height of a drawing.
var size = regexp.MustCompile(`^<svg[^>]* width="(\d+)"[^>]* height="(\d+)"`)

// picture notes a picture, and says its size, so that nothing moves when it has come.
func (s *site) picture(p *page, n *ast.Image) error {
	name := path.Join(path.Dir(p.path), string(n.Destination))
	file, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	s.assets[name] = true
	n.SetAttributeString("loading", []byte("lazy"))

	// A drawing says its size in its first element.
	width, height := "", ""
	if m := size.FindSubmatch(file); m != nil {
		width, height = string(m[1]), string(m[2])
	} else if c, err := png.DecodeConfig(bytes.NewReader(file)); err == nil {
		width, height = strconv.Itoa(c.Width), strconv.Itoa(c.Height)
	} else {
		return fmt.Errorf("%s: the size of %s is not known", p.path, name)
	}

	n.SetAttributeString("width", []byte(width))
	n.SetAttributeString("height", []byte(height))
	return nil
}

var (
	headed  = regexp.MustCompile(`(?s)<h([2-6]) id="([^"]*)">(.*?)</h[2-6]>`)
	block   = regexp.MustCompile(`(?s)<pre>(<code[^>]*>)(.*?)</code></pre>`)
	token   = regexp.MustCompile(`<code>([^ <]{1,30})</code>`)
	tables  = regexp.MustCompile(`(?s)<table>.*?</table>`)
	noHead  = regexp.MustCompile(`<th( class="number")?></th>`)
	unnamed = regexp.MustCompile(`^(<table>\s*<thead>\s*<tr>\s*)<th( class="number")?></th>`)
	rowHead = regexp.MustCompile(`(?s)(<tr>\s*)<td>(.*?)</td>`)
)

// html returns the page as HTML. Elements that the renderer has written are known by their tags,
// which text cannot have, as it is escaped.
func (p *page) html() (string, error) {
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.text, p.root); err != nil {
		return "", err
	}

	// Tables and code scroll by themselves, and so need the keyboard.
	number := 0
	body := tables.ReplaceAllStringFunc(b.String(), func(table string) string {
		number++
		return fmt.Sprintf(`<div class="scroll" tabindex="0" role="region" aria-label="Table %d">`, number) +
			headRows(table) + "</div>"
	})
	body = token.ReplaceAllString(body, `<code class="word">$1</code>`)

	// Headings show their anchors.
	body = headed.ReplaceAllString(body,
		`<h$1 id="$2">$3 <a class="anchor" href="#$2" aria-label="Link to this section">#</a></h$1>`)

	return block.ReplaceAllStringFunc(body, func(pre string) string {
		if !isWide(pre) {
			return pre
		}
		return strings.Replace(pre, "<pre>", `<pre tabindex="0">`, 1)
	}), nil
}

// headRows makes headings of the first cells of rows, if the column that they are in has none.
// Other columns without one get one for those who do not see the table.
func headRows(table string) string {
	head, rows, _ := strings.Cut(table, "<tbody>")
	if unnamed.MatchString(head) {
		head = unnamed.ReplaceAllString(head, `$1<td></td>`)
		rows = rowHead.ReplaceAllString(rows, `$1<th scope="row">$2</th>`)
	}

	head = noHead.ReplaceAllString(head, `<th$1><span class="hidden">Description</span></th>`)
	if rows == "" {
		return head
	}
	return head + "<tbody>" + rows
}

// narrow is how many characters of code a telephone shows.
const narrow = 34

// isWide reports whether a block may have to be scrolled, and so needs the keyboard.
func isWide(pre string) bool {
	for line := range strings.Lines(block.FindStringSubmatch(pre)[2]) {
		if utf8.RuneCountInString(html.UnescapeString(line)) > narrow {
			return true
		}
	}
	return false
}

// cutTitle separates the title of a page from the rest.
func cutTitle(body string) (title, rest template.HTML) {
	at := strings.Index(body, "</h1>") + len("</h1>")
	return template.HTML(body[:at]), template.HTML(body[at:])
}
