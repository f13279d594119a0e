// Package debug shows what limiters know, in the manner of net/http/pprof: the rules in force,
// the state of the store, who is refused and who is admitted, and the latest errors.
//
//	l := limiter.MustNew(limiter.Config{Top: 100, Rules: []limiter.Rule{
//		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//	defer l.Close()
//
//	mux := http.NewServeMux()
//	mux.Handle("/", nethttp.New(l)(http.NotFoundHandler()))
//	mux.Handle("/debug/limits", debug.Handler(l))
//
// [Handler] shows limiters, and a [Page] also says who may see them. The page is HTML without
// scripts. With ?format=json, or for a client that accepts JSON and no HTML, it is JSON, a
// [Report]. It shows keys, which say who the callers are, so by default it answers only clients on
// the same machine; see [Local]. Set limiter.Config.Top to see keys and counts of verdicts.
//
// All of it is of one process. No request asks a server, so the page answers while the store
// is away.
//
// Whatever clients have sent is shown inert: keys and errors are quoted in ASCII, as by
// [strconv.QuoteToASCII], before they are escaped.
package debug

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/limiter"
)

// Page is an [http.Handler] that shows limiters. It must not be changed once it is in use.
type Page struct {
	// Limiters are those to show. The page leaves out those that are nil.
	Limiters []*limiter.Limiter

	// Names are what the page calls the limiters, in their order. A limiter without one
	// is called by its Config.Name, or by its number, from 1 on.
	Names []string

	// Allow reports whether the page answers a request; nil means [Local]. It must be safe
	// for concurrent use.
	Allow func(r *http.Request) bool
}

// Handler returns a page of the limiters that answers clients on the same machine.
func Handler(limiters ...*limiter.Limiter) http.Handler { return &Page{Limiters: limiters} }

// forwarding are the headers by which proxies say that a request is not their own.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Client-Ip",
	"True-Client-Ip", "Cf-Connecting-Ip", "Fly-Client-Ip", "Via",
}

// Local reports whether r comes from the same machine and was not forwarded: its peer is a
// loopback address, its Host is one too or localhost, and no header says that a proxy has
// passed it on. The Host keeps out the pages of others whose names resolve to this
// machine (DNS rebinding). A proxy on this machine that adds no header and sends a Host such
// as localhost cannot be distinguished from a client here; set [Page.Allow] behind one.
func Local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !isLocalHost(r.Host) {
		return false
	}
	for _, name := range forwarding {
		if len(r.Header[name]) > 0 {
			return false
		}
	}
	return true
}

// isLocalHost reports whether a Host, with or without a port, is that of this machine.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.Unmap().IsLoopback()
}

//go:embed page.html
var pageText string

//go:embed page.css
var style string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"seconds": seconds, "clock": clock, "style": func() template.CSS { return template.CSS(style) },
}).Parse(pageText))

// securityPolicy is the Content-Security-Policy of the page: it loads nothing, and its style is
// the one that it holds.
var securityPolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// refusal is what a client reads that is not allowed.
const refusal = "This page answers requests from the same machine only. " +
	"The program can allow others by debug.Page.Allow.\n"

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Refusals and errors have these headers too.
	h := w.Header()
	h.Set("Content-Security-Policy", securityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")

	allow := p.Allow
	if allow == nil {
		allow = Local
	}

	switch {
	case !allow(r):
		http.Error(w, strings.TrimSuffix(refusal, "\n"), http.StatusForbidden)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "The page is only read.", http.StatusMethodNotAllowed)
		return
	}

	// The page is made as a whole before anything is sent, so that an error has a status.
	var err error
	var text bytes.Buffer
	switch format := r.URL.Query().Get("format"); {
	case format == "json", format == "" && wantsJSON(r.Header["Accept"]):
		h.Set("Content-Type", "application/json")
		e := json.NewEncoder(&text)
		e.SetIndent("", "  ")
		err = e.Encode(p.Report())
	case format == "" || format == "html":
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = page.Execute(&text, p.Report())
	default:
		http.Error(w, `The format is neither "html" nor "json".`, http.StatusBadRequest)
		return
	}

	if err != nil {
		http.Error(w, "The page cannot be made: "+quote(err.Error()), http.StatusInternalServerError)
		return
	}

	h.Add("Vary", "Accept")
	_, _ = w.Write(text.Bytes()) // the client may have left
}

// wantsJSON reports whether the lines of Accept name JSON and do not name HTML.
func wantsJSON(lines []string) (wants bool) {
	for _, line := range lines {
		for _, item := range strings.Split(line, ",") {
			switch kind, _, _ := mime.ParseMediaType(item); kind {
			case "application/json":
				wants = true
			case "text/html", "application/xhtml+xml":
				return false
			}
		}
	}
	return wants
}
