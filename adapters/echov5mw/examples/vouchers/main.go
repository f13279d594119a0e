// Vouchers limits guesses of voucher codes, in any hour and by address:
//
//	go -C adapters/echov5mw run ./examples/vouchers
//	curl -i http://127.0.0.1:8080/vouchers/SPRING
//	for i in 1 2 3 4; do curl -i http://127.0.0.1:8080/vouchers/GUESS$i; done
//
// The fourth wrong code gets a 429 without a look at the codes. The handler returns
// echo.ErrNotFound for a wrong code, and the limiter takes the status from the error. A
// unit is taken before the look and refunded after any other status, so that simultaneous
// guesses cannot exceed the limit. The program does not start with a mistake in its set-up.
package main

import (
	"log"
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() {
	e, err := server()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", e))
}

func server() (*echo.Echo, error) {
	l, err := limiter.New(limiter.Config{Rules: []limiter.Rule{{
		Name: "guesses", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("3/1h sliding-log"),
		RefundIf: func(status int) bool { return status != http.StatusNotFound },
	}}})
	if err != nil {
		return nil, err
	}

	// ToMiddleware returns the mistakes that New would only log.
	limit, err := echov5mw.Config{Limiter: l, Refused: refuse}.ToMiddleware()
	if err != nil {
		return nil, err
	}

	e := echo.New()
	e.GET("/vouchers/:code", voucher, limit)
	return e, nil
}

// refuse leaves the answer to Echo's error handler. The limiter has set Retry-After.
func refuse(*echo.Context, *limiter.Admission) error {
	return echo.NewHTTPError(http.StatusTooManyRequests, "too many wrong codes")
}

func voucher(c *echo.Context) error {
	if strings.ToUpper(c.Param("code")) != "SPRING" {
		return echo.ErrNotFound
	}
	return c.String(http.StatusOK, "ten per cent off\n")
}
