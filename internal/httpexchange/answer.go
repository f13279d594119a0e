package httpexchange

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// ReadUsage returns what reads the usage in the body of the answer, or nil if no rule needs it. It
// takes Accept-Encoding out of the request: what a handler compresses cannot be read.
func ReadUsage(r *http.Request, a *limiter.Admission) *llmusage.Meter {
	if !a.NeedsUsage() {
		return nil
	}
	r.Header.Del("Accept-Encoding")
	return &llmusage.Meter{}
}

// See tells the admission where the answer is seen: its headers, and what reads the usage in its
// body.
func See(a *limiter.Admission, header http.Header, usage *llmusage.Meter) {
	if a.NeedsAnswer() {
		a.See(limiter.Seen{Header: func(name string) []string { return header[name] }, Usage: usage})
	}
}

// Record returns a recorder of the answer to a request, which the admission sees.
func Record(w http.ResponseWriter, r *http.Request, a *limiter.Admission) *Recorder {
	rec := &Recorder{ResponseWriter: w, Admission: a, usage: ReadUsage(r, a)}
	if a.NeedsAnswer() {
		a.See(limiter.Seen{Header: rec.lines, Usage: rec.usage})
	}
	return rec
}

// lines returns the lines of a header of the answer.
func (r *Recorder) lines(name string) []string {
	if lines, ok := r.hidden[name]; ok {
		return lines
	}
	return r.Header()[name]
}

// hide keeps the lines of a header that the client does not get.
func (r *Recorder) hide(name string, lines []string) {
	if r.hidden == nil {
		r.hidden = http.Header{}
	}
	r.hidden[name] = lines
}

// Hide takes headers by their names in canonical form out of the header of an answer to w. If an
// admission sees that answer, it sees them still.
func Hide(w http.ResponseWriter, header http.Header, names []string) {
	seen, _ := w.(interface{ hide(string, []string) })
	for _, name := range names {
		if lines := header[name]; lines != nil && seen != nil {
			seen.hide(name, lines)
		}
		delete(header, name)
	}
}
