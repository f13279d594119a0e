//go:build !race

package nethttp_test

const racing = false
