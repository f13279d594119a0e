//go:build race

package failover

// racing tells that pools forget at random, as the race detector has them do.
const racing = true
