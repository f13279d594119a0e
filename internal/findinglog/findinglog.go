// Package findinglog says findings of a limiter in the words of the program that runs it: a
// limiter names functions of Go, and those who run a gateway have flags. A [Handler] passes
// records on with other texts.
package findinglog

import (
	"context"
	"log/slog"
)

// Handler passes records on, with other texts for findings. Its methods are safe for
// concurrent use if those of the handler below are.
type Handler struct {
	slog.Handler
	texts map[string]string
}

// New returns a handler that logs through h. texts has the texts of findings by their codes,
// such as "HG001". It must not change.
func New(h slog.Handler, texts map[string]string) Handler { return Handler{h, texts} }

// Handle implements [slog.Handler].
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	if text := h.texts[code(r)]; text != "" {
		other := slog.NewRecord(r.Time, r.Level, text, r.PC)
		r.Attrs(func(a slog.Attr) bool {
			other.AddAttrs(a)
			return true
		})
		r = other
	}
	return h.Handler.Handle(ctx, r)
}

// code returns the code of the finding that a record is about, or "".
func code(r slog.Record) (code string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "code" && a.Value.Kind() == slog.KindString {
			code = a.Value.String()
		}
		return code == ""
	})
	return code
}

// WithAttrs implements [slog.Handler].
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.Handler.WithAttrs(attrs), h.texts}
}

// WithGroup implements [slog.Handler].
func (h Handler) WithGroup(name string) slog.Handler {
	return Handler{h.Handler.WithGroup(name), h.texts}
}
