package api

import (
	"maps"
	"slices"
	"strings"
)

// clip shortens a text that a client sent, for an error.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
