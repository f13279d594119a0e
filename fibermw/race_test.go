//go:build race

package fibermw_test

// racing tells that pools forget at random, as the race detector has them do.
const racing = true
