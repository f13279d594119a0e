//go:build !race

package core_test

const racing = false
