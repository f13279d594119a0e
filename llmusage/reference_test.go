// This file reads the counts of one JSON object with encoding/json, at leisure.

package llmusage

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// countKeys are the paths of counts in a usage.
var countKeys = map[string]meaning{
	"prompt_tokens":                              prompt,
	"input_tokens":                               input,
	"completion_tokens":                          output,
	"output_tokens":                              output,
	"total_tokens":                               total,
	"cache_read_input_tokens":                    cacheRead,
	"cache_creation_input_tokens":                cacheWrite,
	"prompt_tokens_details cached_tokens":        cached,
	"input_tokens_details cached_tokens":         cached,
	"reasoning_tokens":                           reasoning,
	"completion_tokens_details reasoning_tokens": reasoning,
	"output_tokens_details reasoning_tokens":     reasoning,
	"completion_tokens_details thinking_tokens":  reasoning,
	"output_tokens_details thinking_tokens":      reasoning,
}

// reference returns the counts of a text that is one JSON object. ok is false for any
// other text, and for one with an escape that could be part of a key.
func reference(text []byte) (all counts, ok bool) {
	// A key with an escape may be another than the one that it looks like, which a reader of raw
	// bytes does not resolve.
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if !json.Valid(text) || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) ||
		bytes.Contains(text, []byte(`\u00`)) {
		return all, false
	}

	// A usage counts at three places only.
	walk(json.RawMessage(text), "", func(path string, value json.RawMessage) {
		switch path {
		case "usage", "response usage", "message usage":
		default:
			return
		}

		var c counts

		// The rules for numbers are those of the meter: whole, not negative, up to maxCount.
		walk(value, "", func(path string, value json.RawMessage) {
			w, known := countKeys[path]
			n, err := strconv.ParseInt(string(value), 10, 64)
			if known && err == nil && value[0] != '-' && n <= maxCount {
				c.set(w, n)
			}

			if path == "iterations" {
				addIterations(&c, value)
			}
		})

		if c.named {
			all.merge(&c)
		}
	})
	return all, true
}

// addIterations adds the calls of a list that a usage does not include.
func addIterations(c *counts, list json.RawMessage) {
	// What is not a list is passed over, as by the meter.
	var calls []json.RawMessage
	if json.Unmarshal(list, &calls) != nil {
		return
	}

	// Each element is a call with counts of its own, at its own level only.
	for _, text := range calls {
		var call counts
		beside := false
		walk(text, "", func(path string, value json.RawMessage) {
			w, known := countKeys[path]
			n, err := strconv.ParseInt(string(value), 10, 64)
			if known && !strings.Contains(path, " ") && err == nil && value[0] != '-' && n <= maxCount {
				call.set(w, n)
			}

			// The kind may come after the counts.
			if path == "type" && value[0] == '"' {
				beside = string(value) == `"compaction"` || string(value) == `"advisor_message"`
			}
		})

		if beside {
			c.addApart(&call)
		}
	}
}

// walk calls visit for each member of an object and of the objects in it, in order,
// with the keys that lead there. Objects come after their members.
func walk(text json.RawMessage, path string, visit func(path string, value json.RawMessage)) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, _ := d.Token(); t != json.Delim('{') {
		return
	}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return
		}

		// A space in a key would look like the step to a deeper one.
		name := strings.ReplaceAll(key.(string), " ", "\n")
		if name == "" {
			name = "\n" // a path that is not that of the object
		}

		if path != "" {
			name = path + " " + name
		}

		walk(value, name, visit)
		visit(name, value)
	}
}
