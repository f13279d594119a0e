// Package echov5mw limits requests in servers of Echo v5. Package echomw does for v4.
//
//	e := echo.New()
//	e.Use(echov5mw.New(limiter.PerIP("100/1m")))
//	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
//	log.Fatal(e.Start("127.0.0.1:8080"))
//
// [New] makes the middleware of a [limiter.Limiter], whose rules say what is counted. [Key] makes
// the key of a rule from an *echo.Context, and a [Config] has what a program adds, such as
// requests to leave out and answers of its own. Put the middleware behind one that recovers from
// panics.
//
// Rules see the peer of the connection, and never an address that Echo.IPExtractor reads
// from a header. The route of a request is echo.Context.Path, which is set before
// middleware added by Use runs. It may be "" for a request that matches no route, and in
// middleware added by Pre.
//
// # The status of an error
//
// Handlers return errors, which Echo's error handler answers after all middleware. The
// middleware returns the error of the handler unchanged. It calls Rule.RefundIf with the
// status of echo.ResolveResponseStatus, which is the one that echo.DefaultHTTPErrorHandler
// sends for the error: that of the outermost echo.HTTPStatusCoder in it, and 500 if there
// is none. If HTTPErrorHandler sends another status, a handler has to answer by itself for
// RefundIf to get that status.
package echov5mw
