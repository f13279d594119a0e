package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
)

func start(t *testing.T) *echo.Echo {
	t.Helper()
	e, err := server()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func ask(e *echo.Echo, code, from string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/vouchers/"+code, nil)
	r.RemoteAddr = from + ":1234"
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func TestWrongCodesAloneCount(t *testing.T) {
	e := start(t)

	for i, row := range []struct {
		code, from string
		want       int
	}{
		// Right codes cost nothing, in any spelling. Wrong ones are three an hour, and then right
		// ones are refused too.
		{"SPRING", "192.0.2.1", 200}, {"spring", "192.0.2.1", 200}, {"GUESS", "192.0.2.1", 404},
		{"SPRING", "192.0.2.1", 200},
		{"GUESS", "192.0.2.1", 404}, {"GUESS", "192.0.2.1", 404}, {"GUESS", "192.0.2.1", 429},
		{"SPRING", "192.0.2.1", 429},

		// Another address has a count of its own.
		{"SPRING", "192.0.2.2", 200},
	} {
		if got := ask(e, row.code, row.from).Code; got != row.want {
			t.Errorf("request %d, %s from %s: %d, want %d", i, row.code, row.from, got, row.want)
		}
	}
}

func TestRefusalIsOneOfEcho(t *testing.T) {
	e := start(t)
	for range 3 {
		ask(e, "GUESS", "192.0.2.1")
	}
	got := ask(e, "GUESS", "192.0.2.1")
	if body, after := got.Body.String(), got.Header().Get("Retry-After"); body != `{"message":"too many wrong codes"}`+
		"\n" || after != "3600" {
		t.Errorf("%q, Retry-After %s", body, after)
	}
}
