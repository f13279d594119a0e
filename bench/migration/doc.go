// Package migration tests the rows of docs/peers.md: it runs each row on headgate
// and on its peer.
package migration
