package llmusage

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// stream returns the events as a stream.
func stream(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

const (
	start = `{"type":"message_start","message":{"usage":{"input_tokens":15,"cache_read_input_tokens":9000,"cache_creation_input_tokens":100,"output_tokens":1}}}`
	ends  = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`
)

func TestCountOfZeroReplacesNone(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       Usage
	}{
		// Streams of Anthropic: a later event may leave counts out by sending zeros.
		{"the input of a message", stream(`{"message":{"usage":{"input_tokens":1500,"output_tokens":1}}}`,
			ends+`{"input_tokens":0,"output_tokens":42}}`),
			Usage{Input: 1500, Output: 42, Total: 1542}},
		{"the caches of a message", stream(start,
			ends+`{"input_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":42}}`),
			Usage{Input: 9115, Output: 42, Total: 9157, CacheRead: 9000, CacheWrite: 100}},
		{"the output of a message", stream(`{"message":{"usage":{"input_tokens":9,"output_tokens":3}}}`,
			ends+`{"output_tokens":0}}`),
			Usage{Input: 9, Output: 3, Total: 12}},
		{"all of a message", stream(start, ends+`{"output_tokens":42}}`, ends+`{"input_tokens":0,"output_tokens":0}}`),
			Usage{Input: 9115, Output: 42, Total: 9157, CacheRead: 9000, CacheWrite: 100}},
		{"the thinking of a message",
			stream(start, ends+`{"output_tokens":42,"output_tokens_details":{"thinking_tokens":30}}}`,
				ends+`{"output_tokens":43,"output_tokens_details":{"thinking_tokens":0}}}`),
			Usage{Input: 9115, Output: 43, Total: 9158, CacheRead: 9000, CacheWrite: 100, Reasoning: 30}},

		// The same in the names of OpenAI, chat completions and responses.
		{"chat completions",
			stream(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}}`,
				`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`),
			Usage{Input: 5, Output: 9, Total: 14}},
		{"the details of chat completions",
			stream(
				`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":7}}}`,
				`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`),
			Usage{Input: 5, Output: 9, Total: 14, CacheRead: 4, Reasoning: 7}},
		{"responses",
			stream(`{"response":{"status":"completed","usage":{"input_tokens":5,"output_tokens":9,"total_tokens":14}}}`,
				`{"response":{"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}}}`),
			Usage{Input: 5, Output: 9, Total: 14}},

		// Both names in one usage: a zero under one does not hide the count under the other.
		{"the other names in one usage",
			`{"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"input_tokens":0,"output_tokens":0,"input_tokens_details":null}}`,
			Usage{Input: 5, Output: 9, Total: 14}},
		{"the other names before",
			`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"input_tokens":5,"output_tokens":9}}`,
			Usage{Input: 5, Output: 9, Total: 14}},
		{"the other name of what was cached",
			`{"usage":{"prompt_tokens":5,"completion_tokens":9,"cache_read_input_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}`,
			Usage{Input: 5, Output: 9, Total: 14, CacheRead: 4}},

		// A total of zero or of earlier counts is made up from the counts, unless it is larger.
		{"the total", `{"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":0}}`,
			Usage{Input: 5, Output: 9, Total: 14}},
		{"a total of earlier counts", stream(`{"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`,
			`{"choices":[],"usage":{"completion_tokens":9}}`),
			Usage{Input: 5, Output: 9, Total: 14}},
		{"a larger total of earlier counts",
			stream(`{"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":9}}`,
				`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}`),
			Usage{Input: 5, Output: 2, Total: 9}},

		// Counts other than zero do replace what was before, in both directions.
		{"counts that grow", stream(`{"message":{"usage":{"input_tokens":0,"output_tokens":0}}}`,
			ends+`{"input_tokens":9,"output_tokens":16}}`),
			Usage{Input: 9, Output: 16, Total: 25}},
		{"counts that shrink", stream(`{"message":{"usage":{"input_tokens":12,"output_tokens":0}}}`,
			ends+`{"input_tokens":9,"output_tokens":16}}`),
			Usage{Input: 9, Output: 16, Total: 25}},
	} {
		if got, err := read(t, row.text); got != row.want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", row.name, got, err, row.want)
		}
	}

	// Zeros alone are no usage: a caller must not settle an answer at no cost.
	for _, zeros := range []string{
		`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
		stream(`{"response":{"status":"completed","usage":{"input_tokens":0,"output_tokens":0}}}`),
		stream(`{"message":{"usage":{"input_tokens":0,"output_tokens":0}}}`),
	} {
		if got, err := read(t, zeros); got != (Usage{}) || !errors.Is(err, ErrNoUsage) {
			t.Errorf("%s: %+v, %v, want no usage", zeros, got, err)
		}
	}
}

// Counts that a vendor writes beside the others are added also without a total that shows it.
func TestCountsThatAreReportedBeside(t *testing.T) {
	for text, want := range map[string]Usage{
		`{"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":9,"thoughtsTokenCount":4}}`: {
			Input: 5, Output: 13, Total: 18, Reasoning: 4},
		`{"usageMetadata":{"promptTokenCount":5,"thoughtsTokenCount":4,"totalTokenCount":9}}`: {
			Input: 5, Output: 4, Total: 9, Reasoning: 4},
		`{"usageMetadata":{"promptTokenCount":5,"toolUsePromptTokenCount":3,"totalTokenCount":8}}`: {Input: 8, Total: 8},
		`{"usage":{"inputTokens":5,"cacheReadInputTokens":7,"outputTokens":1,"totalTokens":6}}`: {
			Input: 12, Output: 1, Total: 13, CacheRead: 7},
		`{"usage":{"tokens":{"output_tokens":3},"billed_units":{"input_tokens":9,"output_tokens":2}}}`: {
			Input: 9, Output: 3, Total: 12},
		`[{"usageMetadata":{"promptTokenCount":5}},{"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":2}}]`: {
			Input: 5, Output: 2, Total: 7},
	} {
		if got, err := read(t, text); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestReasoningThatIsReportedApart(t *testing.T) {
	for _, row := range []struct {
		name, usage string
		want        Usage
	}{
		// The completion leaves the reasoning out: only the total of 32, 9 and 94 shows it.
		{"the total shows it",
			`"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},
		{"under the names of responses",
			`"input_tokens":32,"output_tokens":9,"total_tokens":135,"output_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},
		{"beside the counts", `"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"reasoning_tokens":94`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},

		// The smaller reasoning is no proof by itself, the total is.
		{"less than the output",
			`"prompt_tokens":32,"completion_tokens":9,"total_tokens":44,"completion_tokens_details":{"reasoning_tokens":3}`,
			Usage{Input: 32, Output: 12, Total: 44, Reasoning: 3}},

		// The output may even be zero.
		{"nothing but reasoning",
			`"prompt_tokens":21,"completion_tokens":0,"total_tokens":81,"completion_tokens_details":{"reasoning_tokens":60}`,
			Usage{Input: 21, Output: 60, Total: 81, Reasoning: 60}},
		{"nothing but a total", `"prompt_tokens":21,"completion_tokens":0,"total_tokens":81`,
			Usage{Input: 21, Output: 60, Total: 81}},
		{"a part of the input was cached",
			`"prompt_tokens":21,"completion_tokens":5,"total_tokens":86,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":60}`,
			Usage{Input: 21, Output: 65, Total: 86, CacheRead: 20, Reasoning: 60}},

		// Without a total, more reasoning than output cannot lie within it.
		{"more than the output, without a total",
			`"prompt_tokens":32,"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},
		{"more than the output, with a total without it",
			`"prompt_tokens":32,"completion_tokens":9,"total_tokens":41,"reasoning_tokens":94`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},

		// Within the output: it is not added once more.
		{"within the output",
			`"prompt_tokens":32,"completion_tokens":103,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},
		{"all of the output",
			`"prompt_tokens":32,"completion_tokens":94,"total_tokens":126,"completion_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 94, Total: 126, Reasoning: 94}},
		{"without a total",
			`"prompt_tokens":32,"completion_tokens":103,"completion_tokens_details":{"reasoning_tokens":94}`,
			Usage{Input: 32, Output: 103, Total: 135, Reasoning: 94}},

		// A total that fits neither reading changes nothing.
		{"a total that proves nothing",
			`"prompt_tokens":32,"completion_tokens":9,"total_tokens":100,"completion_tokens_details":{"reasoning_tokens":4}`,
			Usage{Input: 32, Output: 9, Total: 100, Reasoning: 4}},
		{"an embedding", `"prompt_tokens":8,"completion_tokens":0,"total_tokens":8`, Usage{Input: 8, Total: 8}},
	} {
		// Each row in three envelopes: an object, a chunk and a response.
		for _, text := range []string{`{"usage":{` + row.usage + `}}`,
			stream(`{"choices":[],"usage":{` + row.usage + `}}`),
			stream(`{"response":{"status":"completed","usage":{` + row.usage + `}}}`)} {
			if got, err := read(t, text); got != row.want || err != nil {
				t.Errorf("%s: %+v, %v, want %+v", row.name, got, err, row.want)
			}
		}
	}

	// The total belongs to an earlier event with fewer tokens, so its surplus is no reasoning.
	early := stream(`{"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":15}}`,
		`{"usage":{"prompt_tokens":10,"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":1}}}`)
	if got, err := read(t, early); got != (Usage{Input: 10, Output: 4, Total: 15, Reasoning: 1}) || err != nil {
		t.Errorf("a total of earlier counts proves nothing: %+v, %v", got, err)
	}
}

// The usage of a message does not include the calls before it.
func TestCallsBesideTheMessage(t *testing.T) {
	// Calls that an API makes beside the message: a compaction of the history, an advisor, a model
	// that declined.
	const (
		compaction = `{"type":"compaction","input_tokens":180000,"output_tokens":3500}`
		message    = `{"input_tokens":23000,"output_tokens":1000,"type":"message"}`
		advisor    = `{"output_tokens":7,"type":"advisor_message","input_tokens":40,"model":"m","cache_read_input_tokens":2,"cache_creation_input_tokens":1,"cache_creation":{"input_tokens":9}}`
		declined   = `{"type":"message","input_tokens":23000,"output_tokens":400}`
		fallback   = `{"type":"fallback_message","input_tokens":23000,"output_tokens":1000}`
	)

	// What the usage itself says, and what it is with the compaction's call.
	own := Usage{Input: 23000, Output: 1000, Total: 24000}
	summed := Usage{Input: 203000, Output: 4500, Total: 207500}

	for _, row := range []struct {
		name, iterations string
		want             Usage
	}{
		// A list with the message alone adds nothing, as the usage includes it.
		{"none", ``, own},
		{"null", `null`, own},
		{"an empty list", `[]`, own},
		{"an object", compaction, own},
		{"the message", `[` + message + `]`, own},
		{"a declined message", `[` + declined + `,` + fallback + `]`, own},

		// Each other call is added, wherever it is in the list.
		{"a compaction", `[` + compaction + `,` + message + `]`, summed},
		{"a compaction behind, and spaces", "[ " + message + " ,\t" + compaction + " ] ", summed},
		{"two compactions", `[` + compaction + `,` + compaction + `,` + message + `]`,
			Usage{Input: 383000, Output: 8000, Total: 391000}},
		{"an advisor", `[` + message + `,` + advisor + `]`, Usage{Input: 23043, Output: 1007, Total: 24050,
			CacheRead: 2, CacheWrite: 1}},

		// Elements of other kinds are passed over; texts that merely begin alike are other kinds.
		{"elements of other kinds", `[null,[` + compaction + `],"compaction",7,` + compaction + `]`, summed},
		{"a kind that is no text", `[{"type":["compaction"],"input_tokens":9},{"type":null,"input_tokens":9}]`, own},
		{"kinds that are longer", `[{"type":"compactions","input_tokens":9},{"type":"` + strings.Repeat("compaction",
			9) + `","input_tokens":9}]`, own},
	} {
		t.Run(row.name, func(t *testing.T) {
			// The list stands between the counts, so the parser has to go on after it.
			usage := `{"input_tokens":23000,"output_tokens":1000}`
			if row.iterations != "" {
				usage = `{"input_tokens":23000,"iterations":` + row.iterations + `,"output_tokens":1000}`
			}

			// In an object, repeated in a stream, and after a zero that does not replace the input.
			for _, text := range []string{
				`{"usage":` + usage + `}`,
				stream(`{"message":{"usage":{"input_tokens":23000,"output_tokens":1}}}`, ends+usage+`}`,
					ends+usage+`}`),
				stream(`{"message":{"usage":{"input_tokens":23000,"output_tokens":1}}}`,
					ends+strings.Replace(usage, "23000", "0", 1)+`}`),
			} {
				for _, n := range []int{1, len(text)} {
					if got, err := read(t, split(text, n)...); got != row.want || err != nil {
						t.Errorf("in pieces of %d bytes: %+v, %v, want %+v", n, got, err, row.want)
					}
				}
			}

			// An independent reader has to agree.
			all, ok := reference([]byte(`{"usage":` + usage + `}`))
			if got := all.usage(); got != row.want || !ok {
				t.Errorf("encoding/json reads %+v, want %+v", got, row.want)
			}
		})
	}

	// Sums that overflow would turn into small costs: they stop at 2^53.
	huge := `[` + strings.Repeat(`{"type":"compaction","input_tokens":9007199254740991},`, 2000) + compaction + `]`
	if got, err := read(t, `{"usage":{"input_tokens":1,"iterations":`+huge+`}}`); got.Input != 1<<53 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A client that leaves a stream has used more than what was reported so far, unless the
// stream has said that it ends.
func TestUsageOfStreamsThatAreLeft(t *testing.T) {
	// Chunks with usage so far, as some servers send in each.
	const (
		chunk = `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%[1]d}}`
		last  = `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
	)

	first := strings.NewReplacer("%d", "1", "%[1]d", "11").Replace(chunk)
	for _, row := range []struct {
		name, text string
		meter      error // of all that was written
		left       error // of a body that is closed before its end
		ended      error // of a body that is read to its end
	}{
		// An object is whole or not valid at all.
		{"an object", `{"choices":[{"finish_reason":null}],"usage":{"prompt_tokens":1}}`, nil, nil, nil},

		// A message says in its last event why it stopped.
		{"a message that has begun", stream(start), ErrPartial, ErrPartial, ErrPartial},
		{"a message that ends", stream(start, ends+`{"output_tokens":9}}`), nil, nil, nil},
		{"a message that goes on",
			stream(start, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":9}}`),
			ErrPartial, ErrPartial, nil},
		{"a message that does not say whether it goes on", stream(start,
			`{"type":"message_delta","usage":{"output_tokens":9}}`), nil, ErrPartial, nil},

		// Chunks say so in finish_reason; without a choice in it, the usage is that of the whole.
		{"the first chunk", stream(first), ErrPartial, ErrPartial, nil},
		{"the usage before the choices", stream(`{"usage":{"prompt_tokens":1},"choices":[{"finish_reason":null}]}`),
			ErrPartial, ErrPartial, nil},
		{"the last chunk", stream(first, last), nil, nil, nil},
		{"a chunk without a choice",
			stream(first, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}`), nil, nil, nil},
		{"a chunk without a choice and a usage at first",
			stream(`{"choices":[],"prompt_filter_results":[],"usage":null}`, first), ErrPartial, ErrPartial, nil},
		{"the reason before the usage", stream(`{"choices":[{"finish_reason":"stop"}],"usage":null}`,
			`{"choices":[{}],"usage":{"prompt_tokens":10}}`), nil, nil, nil},
		{"a chunk without choices", stream(`{"usage":{"prompt_tokens":10}}`), nil, ErrPartial, nil},

		// A response has a status.
		{"a response that goes on", stream(`{"response":{"status":"in_progress","usage":{"input_tokens":10}}}`),
			ErrPartial, ErrPartial, nil},
		{"a response that waits", stream(`{"response":{"status":"queued","usage":{"input_tokens":10}}}`), ErrPartial,
			ErrPartial, nil},
		{"a response that ends", stream(`{"response":{"status":"in_progress","usage":{"input_tokens":1}}}`,
			`{"response":{"status":"completed","usage":{"input_tokens":10}}}`), nil, nil, nil},
		{"a response that ends early", stream(`{"response":{"usage":{"input_tokens":10},"status":"incomplete"}}`),
			nil, nil, nil},

		// Without counts there is nothing that could be partial.
		{"no usage", stream(`{"choices":[{"finish_reason":"stop"}]}`), ErrNoUsage, ErrNoUsage, ErrNoUsage},
		{"zeros at first",
			stream(`{"response":{"status":"in_progress","usage":{"input_tokens":0,"output_tokens":0}}}`), ErrNoUsage,
			ErrNoUsage, ErrNoUsage},
	} {
		// Byte by byte and at once: the words that matter may be cut anywhere.
		for _, n := range []int{1, len(row.text)} {
			if _, err := read(t, split(row.text, n)...); !errors.Is(err, row.meter) ||
				(err == nil) != (row.meter == nil) {
				t.Errorf("%s: the error of a meter is %v, want %v", row.name, err, row.meter)
			}
		}

		// The body is closed when all but its last byte is read, or read to its end.
		for end, want := range map[bool]error{false: row.left, true: row.ended} {
			var got error
			resp := &http.Response{Body: io.NopCloser(strings.NewReader(row.text + " "))}
			Watch(resp, func(_ Usage, err error) { got = err })

			n := int64(len(row.text))
			if end {
				n += 2
			}

			_, _ = io.CopyN(io.Discard, resp.Body, n)
			_ = resp.Body.Close()
			if !errors.Is(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%s: the error of a body that ended (%t) is %v, want %v", row.name, end, got, want)
			}
		}
	}
}
