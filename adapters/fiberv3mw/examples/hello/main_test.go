package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestSixthRequestIsRefused(t *testing.T) {
	a := app()
	for i := range 6 {
		resp, err := a.Test(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if want := map[bool]int{true: 200, false: 429}[i < 5]; resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i+1, resp.StatusCode, want)
		}
	}
}
