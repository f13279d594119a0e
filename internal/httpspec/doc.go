// Package httpspec is what every adapter promises to clients, told once. Each
// adapter's package runs it with a driver of some hundred lines, over the store
// in memory and over Redis, with requests over loopback and a clock that stands
// still. What is sent and what has to come back is here and nowhere else.
package httpspec
