package api

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// clip shortens a text that a client sent, for an error.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// duration converts seconds. It caps values beyond those of any setting, so that
// they cannot overflow.
func duration(seconds int64) time.Duration {
	const century = 100 * 366 * 24 * 3600
	return time.Duration(min(max(seconds, -1), century)) * time.Second
}
