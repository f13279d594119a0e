// Package echomw limits requests in servers of Echo v4. Package echov5mw does for v5.
//
//	e := echo.New()
//	e.Use(echomw.New(limiter.PerIP("100/1m")))
//	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
//	log.Fatal(e.Start("127.0.0.1:8080"))
//
// [New] makes the middleware of a [limiter.Limiter], whose rules say what is counted. [Key] makes
// the key of a rule from an echo.Context, and a [Config] has what a program adds, such as
// requests to leave out and answers of its own. Put the middleware behind one that recovers from
// panics.
//
// Rules see the peer of the connection. They do not see the address of
// echo.Context.RealIP, which by default every client can forge. The route of a request
// is echo.Context.Path, which is set before middleware added by Use runs. It may be ""
// for a request that matches no route, and in middleware added by Pre.
//
// # The status of an error
//
// Handlers return errors, which Echo's error handler answers after all
// middleware. The middleware returns the error of the handler unchanged. It calls
// Rule.RefundIf with the status that echo.Echo.DefaultHTTPErrorHandler sends for the
// error: the code of an *echo.HTTPError, and 500 for other errors. If HTTPErrorHandler
// sends another status, a handler has to answer by itself, or by echo.Context.Error,
// for RefundIf to get that status.
//
// # When a request ends
//
// A lease ends when the handler returns. Middleware that answers in time while its handler
// goes on, such as middleware.Timeout, belongs around this one.
package echomw
