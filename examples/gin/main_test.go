package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestSixthRequestIsRefused(t *testing.T) {
	// The clock of the test stands still but in Sleep, which takes no time.
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		get := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w.Code
		}

		for i := range 5 {
			if got := get(); got != http.StatusOK {
				t.Errorf("request %d: status %d", i+1, got)
			}
		}
		if got := get(); got != http.StatusTooManyRequests {
			t.Errorf("the sixth request: status %d", got)
		}

		// 5/10s gives one back every two seconds.
		time.Sleep(2 * time.Second)
		if got := get(); got != http.StatusOK {
			t.Errorf("two seconds later: status %d", got)
		}
	})
}
