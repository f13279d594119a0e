// Package ginmw limits requests in Gin servers.
//
//	r := gin.New()
//	r.Use(gin.Recovery(), ginmw.New(limiter))
//
// Rules see the peer of the connection. They do not see the address of
// gin.Context.ClientIP, which by default every client can forge. The limiter warns of
// a key function that uses that address; see [limiter.CodeGinTrustsAll]. The route of
// a request is gin.Context.FullPath, which is set before middleware runs. It is ""
// for a request that matches no route.
package ginmw
