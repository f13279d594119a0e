// Package migration holds the rows of docs/migrating.md to what headgate and its
// peers do: its test runs each row on both.
package migration
