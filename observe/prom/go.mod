module github.com/headgate/headgate/observe/prom

go 1.25.0

// The oldest version on which all tests pass.
require github.com/prometheus/client_golang v1.20.5

require (
	github.com/headgate/headgate v0.1.0
	github.com/prometheus/client_model v0.6.1
	github.com/prometheus/common v0.55.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.17.9 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/procfs v0.15.1 // indirect
	golang.org/x/sys v0.30.0 // indirect
	google.golang.org/protobuf v1.34.2 // indirect
)
