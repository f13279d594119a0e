// Package faultproxy is a proxy between Redis clients and a server on loopback that misbehaves on
// request. It understands enough of RESP2 and RESP3 to distinguish commands and replies, so that a
// fault can meet the n-th call of a script at one exact byte, and it counts the traffic. Faults
// change while connections are open. A [Proxy] has one [Fault] at a time.
package faultproxy
