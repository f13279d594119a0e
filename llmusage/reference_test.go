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

	// Of one vendor each.
	"response_tokens":         output,
	"inputTokens":             input,
	"outputTokens":            output,
	"totalTokens":             total,
	"cacheReadInputTokens":    cacheRead,
	"cacheWriteInputTokens":   cacheWrite,
	"promptTokenCount":        prompt,
	"candidatesTokenCount":    output,
	"thoughtsTokenCount":      reasoningBeside,
	"toolUsePromptTokenCount": inputBeside,
	"totalTokenCount":         total,
	"cachedContentTokenCount": cached,
	"prompt_cache_hit_tokens": cached,
	"cached_tokens":           cached,
	"citation_tokens":         inputBeside,
}

// unitKeys are the paths of counts in a usage of which the larger one holds.
var unitKeys = map[string]meaning{
	"billed_units input_tokens":  prompt,
	"billed_units output_tokens": output,
	"tokens input_tokens":        prompt,
	"tokens output_tokens":       output,
}

// bareKeys are the counts of an object without a usage.
var bareKeys = map[string]meaning{"prompt_eval_count": prompt, "eval_count": output}

// countOf returns the count that a text is, by the rules of the meter: whole, not negative, and up
// to maxCount.
func countOf(value json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil && value[0] != '-' && n <= maxCount
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

	// A usage counts at some places only.
	walk(json.RawMessage(text), "", func(path string, value json.RawMessage) {
		switch path {
		case "usage", "meta", "usageMetadata", "message usage", "delta usage", "metadata usage", "x_groq usage",
			"response usage", "response meta", "response token_count":
			mergeUsage(&all, value)
		case "choices", "candidates":
			mergeChoices(&all, value)
		}

		n, ok := countOf(value)
		if w, known := bareKeys[path]; known && ok {
			all.setBare(w, n)
		}
	})
	return all, true
}

// mergeUsage merges the counts of a usage.
func mergeUsage(all *counts, usage json.RawMessage) {
	var c counts
	walk(usage, "", func(path string, value json.RawMessage) {
		n, ok := countOf(value)
		if w, known := countKeys[path]; known && ok {
			c.set(w, n)
		}
		if w, known := unitKeys[path]; known && ok {
			c.raise(w, n)
		}
		if path == "iterations" {
			addIterations(&c, value)
		}
	})

	if c.named {
		all.merge(&c)
	}
}

// mergeChoices merges the usages of a list of choices.
func mergeChoices(all *counts, list json.RawMessage) {
	var choices []json.RawMessage
	if json.Unmarshal(list, &choices) != nil {
		return
	}
	for _, choice := range choices {
		walk(choice, "", func(path string, value json.RawMessage) {
			if path == "usage" {
				mergeUsage(all, value)
			}
		})
	}
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
		var call call
		beside := false
		walk(text, "", func(path string, value json.RawMessage) {
			n, ok := countOf(value)
			if w, known := countKeys[path]; known && !strings.Contains(path, " ") && ok {
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
