//go:build race

package echomw_test

// racing tells that pools forget at random, as the race detector has them do.
const racing = true
