// Package e2e tests the console as people meet it: its real program, with a real
// database and a real Redis, a browser before it, and two instances of an
// application behind it whose limits are changed.
//
// It takes chromium and redis-server, and mariadbd where HEADGATE_LONG is 1. Without
// them a test is left out, or fails where HEADGATE_REQUIRE is 1. The browser asks
// nothing but 127.0.0.1.
//
//	go test ./e2e -run Journey/sqlite -screenshots ../../docs/console
//
// writes the pictures of the documentation anew.
package e2e
