// Package e2e tests the console as users see it. The real program runs with a real
// database and a real Redis. A browser changes the limits of two instances of an
// application. The playground and the pages of docs/site are tested here too, as the
// browser is here.
package e2e

// The tests need chromium, redis-server, wrk and axe-core (npm ci --ignore-scripts in this
// directory), and mariadbd if HEADGATE_LONG is 1. Without them a test is left out, or fails if
// HEADGATE_REQUIRE is 1. The browser connects to 127.0.0.1 only.
//
//	go test ./e2e -run '(Journey|FirstPolicy)/sqlite|Accessible/pages/shown' \
//	    -screenshots ../../../docs/console
//
// rewrites the pictures of the documentation.
