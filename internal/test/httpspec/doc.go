// Package httpspec specifies what every adapter promises to clients. Each adapter's
// package runs the specification with a driver of some hundred lines, over the memory
// store and over Redis, with requests over loopback and a clock that stands still. The
// drivers contain no expected answers, except the framework's own.
package httpspec
