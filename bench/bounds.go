package main

// bounds are a third above the ratios measured on two processors, so that a
// slowdown by half breaks them and another kind of machine does not.
var bounds = []bound{
	inMemory("hot key", goLimits, 1.15),
	inMemory("refused", goLimits, 0.95),
	inMemory("100k uniform", goLimits, 1.0),
	inAlgorithm("hot key", "GCRA, 30 units a second", 1.3),
	inAlgorithm("hot key", "token bucket", 1.3),
	inAlgorithm("hot key", "fixed window", 1.3),
	inAlgorithm("100k uniform", "GCRA, 30 units a second", 1.15),
	inRules(3),
	inHTTP("net/http, headers", ours, httpLimits, 0.88),
	inHTTP("net/http, no headers", ours, httpRate, 0.78),
	inHTTP("Gin, headers", ours, ginRate, 0.78),
	inHTTP("Gin, no headers", ours, ginRate, 0.95),
	inHTTP("Echo, no headers", ours, echoOwn, 1.9),
	inHTTP("Fiber, headers", ours, fiberOwn, 1.7),
	inHTTP("Fiber, headers", oursX, fiberOwn, 1.4),
	inHTTPRefused("net/http, headers", httpLimits, 0.85),
	inHTTPRefused("Gin, headers", ginRate, 0.95),
	inHTTPRefused("Echo, no headers", echoOwn, 0.75),
	inHTTPRefused("Fiber, headers", fiberOwn, 2.5),
	inRedis(1, redisRate, 1.4),
	inRedis(100, redisRate, 0.5),
}
