// Package faultproxy stands between Redis clients and a server on loopback and
// misbehaves as a test asks. It understands enough of RESP2 and RESP3 to tell
// commands and replies apart, so that a fault can meet the n-th call of a script
// at one exact byte, and it counts what passes. Faults change while connections
// are open.
package faultproxy
