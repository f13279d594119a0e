// Package ginmw limits the requests of Gin servers.
//
//	r := gin.New()
//	r.Use(gin.Recovery(), ginmw.New(limiter))
//
// Rules see the peer of the connection and never what gin.Context.ClientIP
// says, which by default anyone can forge; a key function that uses it all the
// same is warned of, see [limiter.CodeGinTrustsAll]. The route of a request is
// gin.Context.FullPath, which is known to middleware. For a request that no
// route matches it is "".
package ginmw
