// Echo is the smallest service on Echo v4 behind a limiter:
//
//	go run ./examples/echo
//	curl -i http://127.0.0.1:8080/
//
// The sixth curl within some seconds gets a 429.
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/limiter"
)

func main() { log.Fatal(handler().Start("127.0.0.1:8080")) }

func handler() *echo.Echo {
	e := echo.New()
	e.Use(echomw.New(limiter.PerIP("5/10s")))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	return e
}
