package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestSixthRequestIsRefused(t *testing.T) {
	h := handler()
	for i := range 6 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if want := map[bool]int{true: 200, false: 429}[i < 5]; w.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, want)
		}
	}
}
