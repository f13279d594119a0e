//go:build race

package failover

// racing is true because the race detector makes pools forget at random.
const racing = true
