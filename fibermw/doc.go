// Package fibermw limits the requests of Fiber servers, without a detour over
// net/http.
//
//	app := fiber.New()
//	app.Use(recover.New(), fibermw.New(limiter))
//
// Rules see the peer of the connection and never what fiber.Ctx.IP says, which
// is a header wherever ProxyHeader is set. All lines of a header are seen. What
// the rules are given are copies: Fiber's own strings change when a handler
// changes the request.
//
// # Routes and paths
//
// Fiber knows the pattern of a request only in the handlers of that pattern.
// Rules that count by route need the middleware there, before the handler:
//
//	app.Post("/login", fibermw.New(limiter), login)
//
// In Use and Group the route is the prefix that was given to them, such as "/",
// so that all below it is one route.
//
// The path is the one that Fiber routes by: in lower case unless CaseSensitive
// is set, without slashes at its end unless StrictRouting is set, and with
// percent signs as the client wrote them unless UnescapePath is set. So /LOGIN
// and /login/ are one key where they are one route.
//
// # The status of an error
//
// Handlers return errors, which Fiber's error handler answers after all
// middleware. An error goes on as the handler returned it, and Rule.RefundIf is
// told the status that fiber.DefaultErrorHandler gives it: the code of a
// *fiber.Error, else 500. Where ErrorHandler maps errors in another way, a
// handler that answers by itself lets the status be known.
//
// # When a request ends
//
// Its leases are released when its handler has returned, or after that: when a
// body stream has been sent, or given up because the client has left, and when
// the handler of a hijacked connection, such as a WebSocket's, has returned. In
// the rare case that fasthttp drops a request without ending it, as when the
// answer before a hijack cannot be sent, they are released when the garbage
// collector finds it.
//
// # Clients that leave
//
// Fiber does not notice them. A request that waits for its turn waits until its
// turn comes or limiter.Limiter.Close ends all waits, so rules should not wait for
// long. If fiber.Ctx.UserContext has a deadline when the middleware is called,
// it holds.
package fibermw
