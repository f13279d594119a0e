package main

import (
	"io"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
)

func ask(t *testing.T, app *fiber.App, method, path string, headers ...string) string {
	t.Helper()

	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	answer, err := app.Test(r, fiber.TestConfig{})
	if err != nil {
		t.Fatal(err)
	}

	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSearchesOverTheLimitAreCached(t *testing.T) {
	searches := 0
	app := newApp(func(words string) string {
		searches++
		return "all about " + words
	})
	for i, row := range []struct{ words, want string }{
		{"tea", "all about tea"}, {"ink", "all about ink"}, {"tea", "all about tea"},

		// The burst of three is used up. What was found before answers, and for cod nothing was.
		{"tea", "all about tea"}, {"ink", "all about ink"}, {"cod", ""},
	} {
		if got := ask(t, app, "GET", "/search?for="+row.words); got != row.want {
			t.Errorf("request %d: %q, want %q", i, got, row.want)
		}
	}

	// No request over the limit searches.
	if searches != 3 {
		t.Errorf("%d searches, want 3", searches)
	}
}

func TestPreflightsAreNotCounted(t *testing.T) {
	app := newApp(func(words string) string { return words })
	for range 5 {
		ask(t, app, "OPTIONS", "/search", "Origin", "https://shop.example", "Access-Control-Request-Method", "GET")
	}
	if got := ask(t, app, "GET", "/search?for=tea"); got != "tea" {
		t.Errorf("%q", got)
	}
}
