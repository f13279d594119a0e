//go:build race

package core_test

// racing tells that pools forget at random, as the race detector has them do.
const racing = true
