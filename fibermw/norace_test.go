//go:build !race

package fibermw_test

const racing = false
