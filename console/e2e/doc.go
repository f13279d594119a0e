// Package e2e tests the console as people meet it: its real program, with a real
// database and a real Redis, a browser before it, and two instances of an
// application behind it whose limits are changed.
//
// It takes chromium, redis-server and mariadbd. What is missing is skipped loudly;
// HEADGATE_REQUIRE_BROWSER=1, HEADGATE_REQUIRE_REDIS=1 and
// HEADGATE_REQUIRE_MARIADB=1 make that a failure. The browser asks nothing but
// 127.0.0.1.
//
//	go test ./e2e -run Journey/sqlite -screenshots ../../docs/console
//
// writes the pictures of the documentation anew.
package e2e
