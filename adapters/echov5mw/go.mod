module github.com/headgate/headgate/adapters/echov5mw

go 1.25.0

// The oldest version on which all tests pass. .ci/newest has the newest one.
require github.com/labstack/echo/v5 v5.0.4

require github.com/headgate/headgate v0.1.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.20.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)
