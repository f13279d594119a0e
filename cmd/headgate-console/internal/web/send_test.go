package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// told tells when the answer is begun.
type told struct {
	http.ResponseWriter
	begun func()
}

func (t told) WriteHeader(status int) {
	t.begun()
	t.ResponseWriter.WriteHeader(status)
}

// A client that receives its answer slowly has no place among the imports any more.
func TestPlaceOfAnImportIsFreeBeforeTheAnswer(t *testing.T) {
	free, answered := false, false
	admitted := route{
		admit:    func(*request) (func(), error) { return func() { free = true }, nil },
		maxBytes: maxForm,
		answer: func(r *request) error {
			if free {
				t.Error("the place is free before the import is read")
			}
			r.send(http.StatusOK, nil)
			return nil
		},
	}

	w := newWorld(t)
	in := url.Values{"name": {"admin"}, "password": {password}}
	req := httptest.NewRequest(http.MethodPost, "/import", nil)
	for _, c := range w.browser().post("/login", in).cookies() {
		req.AddCookie(c)
	}
	s := &site{Options: Options{Service: w.Service}}
	s.private(admitted).ServeHTTP(told{httptest.NewRecorder(), func() {
		answered = true
		if !free {
			t.Error("the place is taken while the answer is sent")
		}
	}}, req)
	if !answered {
		t.Error("there is no answer")
	}
}
