// Package lua holds the scripts that decide inside Redis.
package lua
