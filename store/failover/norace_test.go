//go:build !race

package failover

const racing = false
