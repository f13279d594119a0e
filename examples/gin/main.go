// Gin is the smallest service on Gin behind a limiter:
//
//	go run ./examples/gin
//	curl -i http://127.0.0.1:8080/
//
// The sixth curl within some seconds gets a 429.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
)

func main() { log.Fatal(handler().Run("127.0.0.1:8080")) }

func handler() *gin.Engine {
	r := gin.Default()
	r.Use(ginmw.New(limiter.PerIP("5/10s")))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	return r
}
