package httpexchange

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// body is the body of a request that ends with an error, unless that is nil.
type body struct {
	io.Reader
	err    error
	closed int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

func (b *body) Close() error { b.closed++; return nil }

// What is read ahead is read again, with the error that it ended with.
func TestReadAheadPutsTheBodyBack(t *testing.T) {
	broken := errors.New("the client has left")
	for name, row := range map[string]struct {
		text   string
		length int64
		err    error
		want   string
		whole  bool
	}{
		"a short body":                 {"1234", 4, nil, "1234", true},
		"one as long as may be":        {"12345678", 8, nil, "12345678", true},
		"a long one":                   {"123456789", 9, nil, "", false},
		"one of unknown length":        {"1234", -1, nil, "", false},
		"one longer than its length":   {"1234567890", 4, nil, "123456789", false},
		"one that does not arrive":     {"12", 4, broken, "12", false},
		"one that is empty, by length": {"", 0, nil, "", true},
	} {
		b := &body{Reader: strings.NewReader(row.text), err: row.err}
		r := &http.Request{Body: b, ContentLength: row.length}
		for range 2 { // by two rules
			if text, whole := ReadAhead(r, 8); string(text) != row.want || whole != row.whole {
				t.Errorf("%s: %q, %v", name, text, whole)
			}
		}

		// A rule that reads less gets none of it, or all.
		if _, whole := ReadAhead(r, 3); whole != (row.whole && len(row.text) <= 3) {
			t.Errorf("%s: %v", name, whole)
		}
		text, err := io.ReadAll(r.Body)
		if string(text) != row.text || !errors.Is(err, row.err) || r.Body.Close() != nil || b.closed != 1 {
			t.Errorf("%s: read again %q, %v", name, text, err)
		}
	}

	if text, whole := ReadAhead(&http.Request{}, 8); text != nil || !whole {
		t.Errorf("without a body: %q, %v", text, whole)
	}
}

// A client that waits for leave to send a body has not asked for it yet.
func TestReadAheadGivesNoLeave(t *testing.T) {
	b := &body{Reader: strings.NewReader("1234")}
	r := &http.Request{Body: b, ContentLength: 4, Header: http.Header{"Expect": {"100-continue"}}}
	if text, whole := ReadAhead(r, 8); text != nil || whole || r.Body != b {
		t.Errorf("%q, %t", text, whole)
	}
}
