// This file knows which versions of servers have a hole that matters where scripts run.

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// hole lets users who may run scripts run any program.
const hole = "CVE-2025-49844"

// mended are the first versions of each line without the hole. Later lines never had it, and of
// earlier ones no version is without it. The sources are
// https://redis.io/blog/security-advisory-cve-2025-49844/ and the notes of the releases at
// https://github.com/redis/redis/releases and https://github.com/valkey-io/valkey/releases.
var mended = map[string][]version{
	"Redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"Valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// version is the version of a server, such as 7.4.6.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// parseVersion reads three numbers.
func parseVersion(text string) (v version, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return version{}, false
		}
		v[i] = int(n)
	}
	return v, true
}

// versionOf returns the name and the version of a server by its answer to INFO. A Valkey also says
// with which version of Redis it is compatible.
func versionOf(info map[string]string) (name, text string) {
	if text = info["valkey_version"]; text != "" {
		return "Valkey", text
	}
	return "Redis", info["redis_version"]
}

// hasHole reports whether a version has the hole. A distribution may have mended it without
// changing the version.
func hasHole(name string, v version) bool {
	fixed := mended[name]
	for _, f := range fixed {
		if f[0] == v[0] && f[1] == v[1] {
			return v[2] < f[2]
		}
	}

	// The line has no version without it, unless it is later than all that had it.
	last := fixed[len(fixed)-1]
	return v[0] < last[0] || v[0] == last[0] && v[1] < last[1]
}

// withoutHole lists the versions of a server that are the first without the hole.
func withoutHole(name string) string {
	var list []string
	for _, v := range mended[name] {
		list = append(list, v.String())
	}
	return strings.Join(list, ", ")
}
