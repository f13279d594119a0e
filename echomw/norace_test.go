//go:build !race

package echomw_test

const racing = false
