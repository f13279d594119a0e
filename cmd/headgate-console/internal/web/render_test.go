package web

import (
	"math"
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
	s.handler(admitted).ServeHTTP(told{httptest.NewRecorder(), func() {
		answered = true
		if !free {
			t.Error("the place is taken while the answer is sent")
		}
	}}, req)
	if !answered {
		t.Error("there is no answer")
	}
}

func TestDigitsAreInGroupsOfThree(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 100000: "100,000", 1234567: "1,234,567", -1: "-1",
		-999: "-999", -1000: "-1,000",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := digits(n); got != want {
			t.Errorf("%d is shown as %s, want %s", n, got, want)
		}
	}
}
