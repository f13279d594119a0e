// Package echomw limits the requests of Echo servers.
//
//	e := echo.New()
//	e.Use(middleware.Recover(), echomw.New(limiter))
//
// Rules see the peer of the connection and never what echo.Context.RealIP says,
// which by default anyone can forge. The route of a request is
// echo.Context.Path, which is known to middleware that Use adds. For a request
// that no route matches, and in middleware that Pre adds, it may be "".
//
// # The status of an error
//
// Handlers return errors, which Echo's error handler answers after all
// middleware. An error goes on as the handler returned it, and Rule.RefundIf is
// told the status that echo.Echo.DefaultHTTPErrorHandler gives it: the code of
// an *echo.HTTPError, else 500. Where HTTPErrorHandler maps errors in another
// way, a handler that answers by itself, or by echo.Context.Error, lets the
// status be known.
package echomw
