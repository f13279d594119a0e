//go:build !linux

package caddymw_test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
