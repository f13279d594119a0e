// Package fibermw limits requests in servers of Fiber v2. It does not convert them to
// net/http. Package fiberv3mw does for v3.
//
//	app := fiber.New()
//	app.Use(recover.New(), fibermw.New(limiter.PerIP("100/1m")))
//	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
//	log.Fatal(app.Listen("127.0.0.1:8080"))
//
// [New] makes the middleware of a [limiter.Limiter], whose rules say what is counted. [Key] makes
// the key of a rule from a *fiber.Ctx, and a [Config] has what a program adds, such as
// requests to leave out and answers of its own.
//
// Rules see the peer of the connection. They do not see the address of fiber.Ctx.IP,
// which comes from a header if ProxyHeader is set. They see all lines of a header, and
// besides the host asked for that of fiber.Ctx.Hostname, if it is another.
// Rules get copies of Fiber's strings, because these change when a handler changes the
// request.
//
// # Routes and paths
//
// Fiber reports the pattern of a request only to the handlers of that pattern.
// Rules that count by route need the middleware there, before the handler:
//
//	app.Post("/login", fibermw.New(l), login)
//
// In middleware of Use and Group the route is their prefix, such as "/", so that all
// paths below the prefix are one route.
//
// The path is the one that Fiber routes by. It is in lower case unless CaseSensitive
// is set, has no slashes at its end unless StrictRouting is set, and is decoded only
// if UnescapePath is set. So /LOGIN and /login/ are one key if they are one route.
//
// # The status of an error
//
// Handlers return errors, which Fiber's error handler answers after all
// middleware. The middleware returns the error of the handler unchanged. It calls
// Rule.RefundIf with the status that fiber.DefaultErrorHandler sends for the error:
// the code of a *fiber.Error, and 500 for other errors. If ErrorHandler sends another
// status, a handler has to answer by itself for RefundIf to get that status.
//
// # When a request ends
//
// The leases of a request are released when its handler has returned. A body stream
// holds them until it has been sent, or until fasthttp stops sending because the client
// has left. A hijacked connection, such as a WebSocket, holds them until its handler
// has returned. fasthttp drops some requests without ending them, for example when the
// answer before a hijack cannot be sent. The garbage collector then releases the
// leases.
//
// # Clients that leave
//
// Fiber does not notice that a client has left. A waiting request therefore waits until
// its booked time or until limiter.Limiter.Close, so rules should only wait for a short
// time. The middleware honors a deadline of fiber.Ctx.UserContext.
package fibermw
