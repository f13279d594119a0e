// Login limits failed log-ins, by account and by address, in any quarter of an hour:
//
//	go run ./examples/login
//	curl -i -d account=alice -d password=wrong http://127.0.0.1:8080/login
//
// The sixth wrong password gets a 429 without a check, and so does the right one after it,
// from the owner too. A unit is taken before the check and refunded after a success, so that
// simultaneous guesses cannot exceed the limit. An address that goes on is banned.
package main

import (
	"crypto/subtle"
	"log"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler())) }

func handler() http.Handler {
	succeeded := func(status int) bool { return status == http.StatusOK }
	account := echomw.Key(func(c echo.Context) (string, bool) { return c.Get("account").(string), true })
	ban := core.MustParseBan("20/15m for 1h max 24h")

	// A sign-in that succeeds is no guess, and is given back.
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "account", Key: account, Limit: core.MustParseLimit("5/15m sliding-log"), RefundIf: succeeded},
		{
			Name: "address", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("20/15m sliding-log"),
			RefundIf: succeeded, Ban: ban,
		},
	}, OnStoreError: limiter.FailClosed}) // no guessing while the store cannot count

	e := echo.New()
	e.POST("/login", login, readAccount, echomw.New(l))
	return e
}

// readAccount comes before the limiter and gives all spellings of an account one name.
func readAccount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		r.Body = http.MaxBytesReader(c.Response(), r.Body, 4096)
		name := strings.ToLower(strings.TrimSpace(r.PostFormValue("account")))
		if name == "" || len(name) > 64 {
			return c.String(http.StatusBadRequest, "account must have 1 to 64 bytes\n")
		}
		c.Set("account", name)
		return next(c)
	}
}

func login(c echo.Context) error { // a real service compares slow hashes, such as argon2
	known := c.Get("account") == "alice" || c.Get("account") == "bob"
	if subtle.ConstantTimeCompare([]byte(c.FormValue("password")), []byte("rabbit")) != 1 || !known {
		return c.String(http.StatusUnauthorized, "account or password is wrong\n")
	}
	return c.String(http.StatusOK, "welcome\n")
}
