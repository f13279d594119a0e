module github.com/headgate/headgate/gateway

go 1.25.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/headgate/headgate v0.1.0
	github.com/redis/go-redis/v9 v9.22.0
	golang.org/x/net v0.24.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
