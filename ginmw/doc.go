// Package ginmw limits requests in Gin servers.
//
//	r := gin.New()
//	r.Use(gin.Recovery(), ginmw.New(limiter.PerIP("100/1m")))
//	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
//	log.Fatal(r.Run("127.0.0.1:8080"))
//
// [New] makes the middleware of a [limiter.Limiter], whose rules say what is counted. [Key] makes
// the key of a rule from a *gin.Context, and a [Config] has what a program adds, such as
// requests to leave out and answers of its own.
//
// Rules see the peer of the connection. They do not see the address of
// gin.Context.ClientIP, which by default every client can forge. The limiter warns of
// a key function that uses that address; see [findings.GinTrustsAll]. The route of
// a request is gin.Context.FullPath, which is set before middleware runs. It is ""
// for a request that matches no route.
//
// # The status of an error
//
// Gin has no error handler: a middleware writes the answer to the errors that handlers report
// by gin.Context.Error. Use it after New, so that Rule.RefundIf gets its status:
//
//	r.Use(gin.Recovery(), ginmw.New(l), answerErrors)
//
// Before New it answers too late. RefundIf then gets the status that the handler has set by
// gin.Context.Status, and 500 if it has set none.
//
// # When a request ends
//
// A lease ends when the handlers return. Middleware that answers in time while they go on, such
// as gin-contrib/timeout, belongs before New.
package ginmw
