// Login slows down guessing of passwords. It limits failed log-ins by account and
// by address; log-ins that succeed do not count:
//
//	go run ./examples/login
//	curl -i -d account=alice -d password=wrong http://127.0.0.1:8080/login
//	curl -i -d account=alice -d password=rabbit http://127.0.0.1:8080/login
//
// The sixth wrong password within a quarter of an hour gets a 429 without a check
// of the password, and so does the right one after it. A unit is taken before the
// check and refunded if the password is right, so that a hundred simultaneous
// guesses cannot exceed the limit.
//
// An attacker who guesses at an account locks its owner out for as long. Accounts
// that must not be locked need another proof than the password.
package main

import (
	"crypto/subtle"
	"flag"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() { serve.Main("login", &program{}) }

type program struct{ account, address core.Limit }

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.account, "account", failures(5), "limit of an account")
	f.TextVar(&p.address, "address", failures(20), "limit of an address")
}

func failures(quota int64) core.Limit {
	return core.Limit{Algorithm: core.SlidingLog, Quota: quota, Period: 15 * time.Minute}
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	l, err := limiter.New(limiter.Config{
		Store: store,
		Rules: []limiter.Rule{
			{Name: "account", Key: echomw.Key(account), Limit: p.account, RefundIf: succeeded},
			{Name: "address", Key: keyfuncs.RemoteIP, Limit: p.address, RefundIf: succeeded},
		},
		OnStoreError: limiter.FailClosed, // no guessing while the store cannot count
		OnError:      serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.POST("/login", login, readAccount, echomw.New(l))
	return &serve.App{Limiter: l, Server: serve.HTTP(e)}, nil
}

func succeeded(status int) bool { return status == http.StatusOK }

// readAccount comes before the limiter. It gives all spellings of an account the
// same name, and refuses invalid names.
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

func account(c echo.Context) (string, bool) {
	name, _ := c.Get("account").(string)
	return name, true
}

func login(c echo.Context) error {
	name, _ := account(c)
	if !passwordIs(name, c.Request().PostFormValue("password")) {
		return c.String(http.StatusUnauthorized, "account or password is wrong\n")
	}
	return c.String(http.StatusOK, "welcome\n")
}

// passwordIs stands in for a slow hash, such as argon2. Accounts that do not exist
// are counted like those that do, so that clients cannot tell them apart.
func passwordIs(account, password string) bool {
	known := account == "alice" || account == "bob"
	return subtle.ConstantTimeCompare([]byte(password), []byte("rabbit")) == 1 && known
}
