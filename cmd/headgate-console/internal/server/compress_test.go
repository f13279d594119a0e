package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCompressOnlyAnswersToGet(t *testing.T) {
	page := strings.Repeat("a policy says how many requests pass; ", 200)
	h, err := Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header().Set("ETag", `W/"1"`)
		if r.Header.Get("If-None-Match") == `W/"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}

		io.WriteString(w, page[:len(page)/len(r.URL.Path)])
	}))
	if err != nil {
		t.Fatal(err)
	}

	ask := func(method, url string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, url, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}

	const html = "/?type=text/html%3B+charset=utf-8"

	// The page repeats itself, so a tenth is easy.
	got := ask("GET", html, "Accept-Encoding", "gzip")
	if got.Header().Get("Content-Encoding") != "gzip" || got.Header().Get("Vary") != "Accept-Encoding" ||
		got.Body.Len() > len(page)/10 {
		t.Errorf("a page is answered with %v and %d bytes", got.Header(), got.Body.Len())
	}

	other := ask("GET", html, "Accept-Encoding", "br, gzip;q=0.5")
	if other.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("a client that prefers another is answered with %v", other.Header())
	}

	if text, err := unpack(got.Body); err != nil || text != page {
		t.Errorf("the page unpacks to %d bytes: %v", len(text), err)
	}

	// The tag is that of the page, however it is packed.
	again := ask("GET", html, "Accept-Encoding", "gzip", "If-None-Match", got.Header().Get("ETag"))
	if again.Code != http.StatusNotModified {
		t.Errorf("a page that the browser has is answered %d", again.Code)
	}

	// None of these is packed: some clients cannot read it, and some answers should not be or
	// gain nothing.
	for name, got := range map[string]*httptest.ResponseRecorder{
		"a client that does not ask":     ask("GET", html),
		"a client that refuses":          ask("GET", html, "Accept-Encoding", "gzip;q=0"),
		"a client that refuses by 0.000": ask("GET", html, "Accept-Encoding", "gzip;q=0.000"),
		"a client that wants another":    ask("GET", html, "Accept-Encoding", "br"),
		"a client that wants none":       ask("GET", html, "Accept-Encoding", "identity"),
		"an answer to a form":            ask("POST", html, "Accept-Encoding", "gzip"),
		"an answer to a form, of tokens": ask("PUT", "/?type=application/json", "Accept-Encoding", "gzip"),
		"an archive":                     ask("GET", "/?type=application/zip", "Accept-Encoding", "gzip"),
		"a short page":                   ask("GET", "/12345678"+html[1:], "Accept-Encoding", "gzip"),
	} {
		if e := got.Header().Get("Content-Encoding"); e != "" {
			t.Errorf("%s is encoded as %q", name, e)
		}

		if b := got.Body.String(); !strings.HasPrefix(page, b) || b == "" {
			t.Errorf("%s gets %d other bytes", name, got.Body.Len())
		}
	}
}

func unpack(packed io.Reader) (string, error) {
	zip, err := gzip.NewReader(packed)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(zip)
	return string(text), err
}
