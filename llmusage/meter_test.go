package llmusage

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// recorded are answers in the forms of the API references, in testdata.
var recorded = []struct {
	file string
	want Usage
}{
	{"chat.json", Usage{Input: 1219, Output: 117, Total: 1336, CacheRead: 1024, Reasoning: 64}},
	{"chat.sse", Usage{Input: 19, Output: 10, Total: 29, Reasoning: 4}},
	{"responses.json", Usage{Input: 36, Output: 87, Total: 123, CacheRead: 7, Reasoning: 5}},
	{"responses.sse", Usage{Input: 37, Output: 11, Total: 48}},
	{"messages.json", Usage{Input: 5495, Output: 503, Total: 5998, CacheRead: 3000, CacheWrite: 400, Reasoning: 200}},
	{"messages.sse", Usage{Input: 2325, Output: 15, Total: 2340, CacheRead: 2000, CacheWrite: 300}},
	{"messages_tools.sse", Usage{Input: 10682, Output: 510, Total: 11192}},
	{"messages_compaction.json", Usage{Input: 203000, Output: 4500, Total: 207500}},
	{"responses_incomplete.sse", Usage{Input: 14, Output: 16, Total: 30, Reasoning: 16}},
	{"embeddings.json", Usage{Input: 8, Total: 8}},
	{"azure.sse", Usage{Input: 18, Output: 10, Total: 28}},

	// The thoughts of Gemini are beside its candidates, and what tools add is beside the prompt.
	{"gemini.json", Usage{Input: 8, Output: 2439, Total: 2447, Reasoning: 1177}},
	{"gemini.sse", Usage{Input: 11, Output: 101, Total: 112, Reasoning: 50}},
	{"gemini.chunks", Usage{Input: 11, Output: 101, Total: 112, Reasoning: 50}},
	{"gemini_tools.json", Usage{Input: 2216, Output: 267, Total: 2483, CacheRead: 2000, Reasoning: 200}},
	{"vertex.json", Usage{Input: 4, Output: 9, Total: 13}},

	// The total of Bedrock may leave out what its caches have.
	{"converse.json", Usage{Input: 125, Output: 60, Total: 185}},
	{"converse_cache.json", Usage{Input: 1619, Output: 31, Total: 1650, CacheRead: 1210, CacheWrite: 400}},
	{"converse.frames", Usage{Input: 47, Output: 20, Total: 67}},
	{"converse.jsonl", Usage{Input: 47, Output: 20, Total: 67}},

	// Of the two counts of Cohere the larger one holds.
	{"cohere.json", Usage{Input: 71, Output: 418, Total: 489, CacheRead: 16}},
	{"cohere.sse", Usage{Input: 212, Output: 14, Total: 226}},
	{"cohere_v1.json", Usage{Input: 75, Output: 27, Total: 102}},
	{"cohere_v1.jsonl", Usage{Input: 75, Output: 27, Total: 102}},
	{"cohere_tokens.jsonl", Usage{Input: 83, Output: 63, Total: 146}},
	{"cohere_embed.json", Usage{Input: 2, Total: 2}},

	{"ollama.json", Usage{Input: 26, Output: 259, Total: 285}},
	{"ollama.jsonl", Usage{Input: 26, Output: 259, Total: 285}},
	{"ollama_chat.jsonl", Usage{Input: 26, Output: 282, Total: 308}},
	{"ollama_embed.json", Usage{Input: 8, Total: 8}},

	// Others that resemble OpenAI, each in its own way.
	{"groq.json", Usage{Input: 18, Output: 556, Total: 574}},
	{"groq.sse", Usage{Input: 23, Output: 19, Total: 42}},
	{"moonshot.json", Usage{Input: 19, Output: 21, Total: 40, CacheRead: 10}},
	{"moonshot.sse", Usage{Input: 19, Output: 13, Total: 32, CacheRead: 7}},
	{"deepseek.json", Usage{Input: 21, Output: 244, Total: 265, CacheRead: 16, Reasoning: 233}},
	{"deepseek.sse", Usage{Input: 21, Output: 244, Total: 265, CacheRead: 16, Reasoning: 233}},
	{"xai.json", Usage{Input: 32, Output: 103, Total: 135, CacheRead: 6, Reasoning: 94}},
	{"perplexity.json", Usage{Input: 20049, Output: 102468, Total: 122517, Reasoning: 95305}},
	{"mistral.sse", Usage{Input: 12, Output: 5, Total: 17}},
	{"vllm.sse", Usage{Input: 7, Output: 2, Total: 9}},
}

func load(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(file, ".frames") {
		return inFrames(string(text))
	}
	return string(text)
}

// inFrames returns the frames of events, each of which is a line with its type and its payload.
func inFrames(events string) string {
	var all []byte
	for line := range strings.Lines(events) {
		event, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		const name = ":event-type"
		headers := append([]byte{byte(len(name))}, name...)
		headers = append(headers, 7, 0, byte(len(event))) // a string
		headers = append(headers, event...)

		frame := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(headers)))
		frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame))
		frame = append(append(frame, headers...), payload...)
		all = append(all, binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame))...)
	}
	return string(all)
}

// read returns the usage of an answer that comes in pieces.
func read(t testing.TB, pieces ...string) (Usage, error) {
	t.Helper()
	var m Meter
	for _, p := range pieces {
		if n, err := m.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("Write of %d bytes returned %d, %v", len(p), n, err)
		}
	}
	return m.Usage()
}

func TestMeterRecorded(t *testing.T) {
	// What any text may be: with other ends of lines and a byte order mark, as proxies and servers
	// make them.
	forms := []struct {
		name string
		with func(string) string
	}{
		{"as recorded", func(s string) string { return s }},
		{"CRLF", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
		{"CR", func(s string) string { return strings.ReplaceAll(s, "\n", "\r") }},
		{"a byte order mark", func(s string) string { return "\xef\xbb\xbf" + s }},
		{"empty lines first", func(s string) string { return "\r\n\n\r" + s }},
		{"no end of the last line", func(s string) string { return strings.TrimRight(s, "\n") }},
	}

	// What a stream may be as well, by the rules for events.
	streams := []struct {
		name string
		with func(string) string
	}{
		{"comments", func(s string) string {
			return ": PROCESSING\n\n" + strings.ReplaceAll(s, "\ndata",
				"\n: data: {\"usage\":{\"input_tokens\":9}}\n:\ndata")
		}},
		{"no space after the colon", func(s string) string { return strings.ReplaceAll(s, "data: ", "data:") }},
		{"data on several lines", func(s string) string {
			return strings.ReplaceAll(s, "\":{", "\":\ndata: {\ndata\n: a comment\ndata:\ndata:")
		}},
		{"data on several lines that end with CRLF", func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, "\":{", "\":\ndata: {\ndata:  "), "\n", "\r\n")
		}},
		{"other fields", func(s string) string {
			return strings.ReplaceAll(s, "\ndata", "\nid: 7\nretry: 10\ndat: {\ndata2: {\n data: {\ndata")
		}},
	}

	// Each recorded answer in each form, in pieces that cut every word at every place.
	for _, r := range recorded {
		text := load(t, r.file)
		all := forms
		if strings.HasSuffix(r.file, ".sse") {
			all = append(all[:len(all):len(all)], streams...)
		}
		if strings.HasSuffix(r.file, ".frames") {
			all = forms[:1] // the others are of texts
		}

		for _, f := range all {
			t.Run(r.file+" with "+f.name, func(t *testing.T) {
				text := f.with(text)
				for _, n := range []int{1, 2, 3, 7, 64, len(text)} {
					if got, err := read(t, split(text, n)...); got != r.want || err != nil {
						t.Errorf("in pieces of %d bytes: %+v, %v, want %+v", n, got, err, r.want)
					}
				}
			})
		}
	}
}

func TestMeterCutAtEachByte(t *testing.T) {
	for _, r := range recorded {
		t.Run(r.file, func(t *testing.T) {
			text := load(t, r.file)
			for i := range len(text) {
				if got, err := read(t, text[:i], text[i:]); got != r.want || err != nil {
					t.Fatalf("at byte %d: %+v, %v, want %+v", i, got, err, r.want)
				}
			}
		})
	}
}

// An answer that breaks off has an error, or the count of the whole: its caller keeps the estimate
// or settles, and neither is too little.
func TestMeterOfAnswersThatBreakOff(t *testing.T) {
	for _, r := range recorded {
		t.Run(r.file, func(t *testing.T) {
			text := load(t, r.file)
			for i := range len(text) {
				got, err := read(t, text[:i])
				if err == nil && (got.Input < r.want.Input || got.Output < r.want.Output || got.Total < r.want.Total) {
					t.Fatalf("after %d bytes of %d: %+v without an error, want %+v", i, len(text), got, r.want)
				}
			}
		})
	}
}

func TestMeterRows(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       Usage
		err        error
	}{
		// Texts without a usage.
		{"nothing", "", Usage{}, ErrNoUsage},
		{"a page", "<html>\"usage\":{\"input_tokens\":1}</html>", Usage{}, ErrNoUsage},
		{"an error of OpenAI",
			`{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, Usage{},
			ErrNoUsage},
		{"an error of Anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
			Usage{}, ErrNoUsage},
		{"an empty usage", `{"usage":{}}`, Usage{}, ErrNoUsage},
		{"a usage of another kind", `{"usage":{"seconds":9,"total_tokens":3}}`, Usage{}, ErrNoUsage},
		{"null", `{"usage":null}`, Usage{}, ErrNoUsage},
		{"an array", `[{"usage":{"input_tokens":1}}]`, Usage{}, ErrNoUsage},

		// A usage is an object at the places where the APIs put it, and nowhere else.
		{"an array of arrays", `{"usage":[[{"input_tokens":1}]]}`, Usage{}, ErrNoUsage},
		{"an object after an array", `{} [{}] {"usage":{"input_tokens":1}}`, Usage{Input: 1, Total: 1}, nil},
		{"a key with an escape", `{"\"usage":{"input_tokens":1},"usage":{"\"output_tokens":1}}`, Usage{}, ErrNoUsage},
		{"two numbers", `{"usage":{"input_tokens":1 2}}`, Usage{}, ErrNoUsage},
		{"a total of its own", `{"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":9}}`,
			Usage{Input: 5, Output: 2, Total: 9}, nil},
		{"a usage without counts before",
			`{"usage":{"total_tokens":9}} {"usage":{"input_tokens":5,"output_tokens":1}}`,
			Usage{Input: 5, Output: 1, Total: 6}, nil},
		{"deeper", `{"a":{"usage":{"input_tokens":1}},"response":{"a":{"usage":{"input_tokens":1}}}}`,
			Usage{}, ErrNoUsage},

		// Text of the answer's own must never be taken for a usage: it is the user's.
		{"in a string", `{"a":"\\","b":"\"usage\":{\"input_tokens\":1}","c":"\\\"}"}`, Usage{}, ErrNoUsage},
		{"a value is no key", `{"a":"usage","b":{"input_tokens":1}}`, Usage{}, ErrNoUsage},
		{"a longer key", `{"usage_":{"input_tokens":1},"usage":{"cache_creation_input_tokens_":1,"input_token":2}}`,
			Usage{}, ErrNoUsage},

		// Usages in other shapes.
		{"an embedding", `{"object":"list","data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
			Usage{Input: 8, Total: 8}, nil},
		{"members in another order",
			`{"usage":{"x":[{"y":{}}],"output_tokens":2,"z":{"output_tokens":9},"input_tokens":3},"a":1}`,
			Usage{Input: 3, Output: 2, Total: 5}, nil},
		{"a space before a comma", "{\"usage\" :\t{ \"input_tokens\" : 3 , \"output_tokens\" : 2 } }",
			Usage{Input: 3, Output: 2, Total: 5}, nil},

		// What is not a whole number from zero to 2^53 - 1 is no count.
		{"no counts",
			`{"usage":{"input_tokens":3,"output_tokens":-2,"total_tokens":1.5,"cache_read_input_tokens":1e3,"cache_creation_input_tokens":"7"}}`,
			Usage{Input: 3, Total: 3}, nil},
		{"null counts",
			`{"usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":null,"prompt_tokens_details":null}}`,
			Usage{Input: 3, Output: 2, Total: 5}, nil},
		{"the largest count", `{"usage":{"input_tokens":9007199254740991,"output_tokens":9007199254740992}}`,
			Usage{Input: 1<<53 - 1, Total: 1<<53 - 1}, nil},
		{"a number without an end", `{"usage":{"input_tokens":` + strings.Repeat("9", 1000) + `,"output_tokens":4}}`,
			Usage{Output: 4, Total: 4}, nil},
		{"prompt_tokens includes what was cached",
			`{"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,"cache_read_input_tokens":6,"cache_creation_input_tokens":2}}`,
			Usage{Input: 10, Output: 1, Total: 11, CacheRead: 6, CacheWrite: 2}, nil},

		// Repeated usages: the last one that has counts is the one that holds.
		{"cumulative usage in every chunk",
			"data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n",
			Usage{Input: 5, Output: 2, Total: 7}, nil},
		{"a later usage without counts",
			"data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\ndata: {\"usage\":{\"total_tokens\":9}}\n\n",
			Usage{Input: 5, Output: 1, Total: 6}, nil},

		// Several texts, broken ones, and nesting deeper than a stack would bear.
		{"several objects", "{\"a\":1}\n{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}\n",
			Usage{Input: 5, Output: 1, Total: 6}, nil},
		{"an event that is no JSON", "data: {\"a\n\ndata: ]}{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}\n\n",
			Usage{Input: 5, Output: 1, Total: 6}, nil},
		{"deep brackets", `{"a":` + strings.Repeat(`[{"usage":`, 10_000) + strings.Repeat(`}]`,
			10_000) + `,"usage":{"input_tokens":5}}`, Usage{Input: 5, Total: 5}, nil},

		// Streams that end early, are compressed, or begin oddly.
		{"an interrupted usage", "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1", Usage{}, ErrNoUsage},
		{"the beginning of a message", strings.SplitAfter(load(t, "messages.sse"), "\n\n")[0],
			Usage{Input: 2325, Output: 1, Total: 2326, CacheRead: 2000, CacheWrite: 300}, ErrPartial},
		{"gzip", "\x1f\x8b\x08", Usage{}, ErrCompressed},
		{"half a byte order mark", "\xef\xbbdata: {\"usage\":{\"input_tokens\":5}}\n", Usage{}, ErrNoUsage},
		{"a byte order mark in the second line",
			"\n\xef\xbb\xbfdata: {\"usage\":{\"input_tokens\":5}}\n", Usage{}, ErrNoUsage},
		{"a line of spaces first", " \t\ndata: {\"usage\":{\"input_tokens\":5}}\n", Usage{Input: 5, Total: 5}, nil},
		{"a space before the first field", " data: {\"usage\":{\"input_tokens\":5}}\n", Usage{}, ErrNoUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			// Byte by byte and at once.
			for _, n := range []int{1, len(row.text)} {
				if got, err := read(t, split(row.text, n)...); got != row.want || !errors.Is(err, row.err) {
					t.Errorf("in pieces of %d bytes: %+v, %v, want %+v, %v", n, got, err, row.want, row.err)
				}
			}
		})
	}
}

// split returns the pieces of a text that have n bytes, and the rest.
func split(text string, n int) (all []string) {
	for len(text) > n {
		all, text = append(all, text[:n]), text[n:]
	}
	return append(all, text)
}

func TestMeterMemory(t *testing.T) {
	// A server may watch thousands of streams at once.
	if size := unsafe.Sizeof(Meter{}); size >= 600 {
		t.Errorf("a meter has %d bytes, want less than 600", size)
	}

	text := []byte(load(t, "messages.sse"))

	// A meter must not collect the text that it reads: in pieces of a hundred bytes no event is
	// whole.
	var m Meter
	if n := testing.AllocsPerRun(100, func() {
		m = Meter{}
		for piece := range slices.Chunk(text, 100) {
			_, _ = m.Write(piece)
		}
		if _, err := m.Usage(); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a stream costs %v allocations, want 0", n)
	}
}

func TestWatch(t *testing.T) {
	stream := load(t, "messages.sse")
	want := Usage{Input: 2325, Output: 15, Total: 2340, CacheRead: 2000, CacheWrite: 300}
	// The model answers as servers do: compressed if the client accepts that.
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			_, _ = io.WriteString(w, stream)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, stream)
		_ = z.Close()
	}))
	defer model.Close()

	target, err := url.Parse(model.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, accept string
		delete       bool
		want         Usage
		err          error
	}{
		// A proxy that lets the client's Accept-Encoding pass gets what it cannot read, and says
		// so.
		{"a stream", "identity", false, want, nil},
		{"a compressed stream", "gzip", false, Usage{}, ErrCompressed},
		{"a stream that the transport decompresses", "gzip", true, want, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got Usage
			calls, reported := 0, error(nil)
			proxy := &httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) {
					r.SetURL(target)
					if row.delete {
						r.Out.Header.Del("Accept-Encoding")
					}
				},
				ModifyResponse: func(resp *http.Response) error {
					Watch(resp, func(u Usage, err error) { got, reported, calls = u, err, calls+1 })
					return nil
				},
			}

			r := httptest.NewRequest(http.MethodPost, "/v1/messages", http.NoBody)
			r.Header.Set("Accept-Encoding", row.accept)
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, r)

			// The report comes once, and the client's bytes are those of the model.
			if calls != 1 || got != row.want || !errors.Is(reported, row.err) {
				t.Errorf("%d calls, the last with %+v, %v, want 1 with %+v, %v", calls, got, reported, row.want,
					row.err)
			}

			if row.err == nil && w.Body.String() != stream {
				t.Errorf("the client got %q", w.Body)
			}
		})
	}
}

func TestWatchCallsOnce(t *testing.T) {
	// The body returns an error on Close, which has to be passed on.
	closed, calls := 0, 0
	resp := &http.Response{Header: http.Header{}, Body: closer{strings.NewReader(`{"usage":{"input_tokens":1}} `),
		&closed}}

	// The report comes on Close, after the body itself is closed.
	Watch(resp, func(u Usage, err error) {
		calls++
		if closed != 1 || u != (Usage{Input: 1, Total: 1}) || err != nil {
			t.Errorf("called with %+v, %v after %d closes of the body, want after 1", u, err, closed)
		}
	})

	// Reading to the end is no Close: more may be asked of the body.
	text, err := io.ReadAll(resp.Body)
	if len(text) != 29 || err != nil || calls != 0 {
		t.Fatalf("read %q, %v after %d calls", text, err, calls)
	}

	// A second Close is passed on but reports nothing.
	for range 2 {
		if err := resp.Body.Close(); !errors.Is(err, errClosed) {
			t.Errorf("Close returned %v", err)
		}
	}

	if closed != 2 || calls != 1 {
		t.Errorf("%d closes and %d calls, want 2 and 1", closed, calls)
	}
}

func TestWatchLeavesUpgradesAlone(t *testing.T) {
	body := closer{nil, nil}
	resp := &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: body}
	calls := 0
	Watch(resp, func(_ Usage, err error) {
		calls++
		if !errors.Is(err, ErrNoUsage) {
			t.Errorf("called with %v", err)
		}
	})
	if calls != 1 || resp.Body != body {
		t.Errorf("%d calls, and the body is a %T", calls, resp.Body)
	}
}

var errClosed = errors.New("closed")

type closer struct {
	io.Reader
	closed *int
}

func (c closer) Close() error { *c.closed++; return errClosed }

func BenchmarkMeter(b *testing.B) {
	// An event of a real stream without a usage, as nearly all are.
	delta := `data: {"id":"chatcmpl-7hQ3","object":"chat.completion.chunk","created":1760334434,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"

	for _, row := range []struct {
		name, text string
		chunk      int
	}{
		{"stream in chunks of an event", strings.Repeat(delta, 200), len(delta)},
		{"stream in chunks of 32 KiB", strings.Repeat(delta, 200), 32 << 10},
		{"object in chunks of 32 KiB", `{"choices":[{"message":{"content":"` + strings.Repeat("word ",
			8000) + `"}}],"usage":{"prompt_tokens":1}}`, 32 << 10},
	} {
		b.Run(row.name, func(b *testing.B) {
			text := []byte(row.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()

			for b.Loop() {
				var m Meter
				for piece := range slices.Chunk(text, row.chunk) {
					_, _ = m.Write(piece)
				}
			}
		})
	}
}

func FuzzMeter(f *testing.F) {
	// The recorded answers, and what their fields do not show: null, zeros, both envelopes, lists.
	for _, r := range recorded {
		f.Add([]byte(load(f, r.file)), uint16(7))
	}
	f.Add([]byte(`{"usage":{"input_tokens":1,"input_tokens":null,"output_tokens":0}}`), uint16(3))
	f.Add([]byte(`{"message":{"usage":{"input_tokens":1}},"response":{"usage":{"output_tokens":2}}}`), uint16(11))
	f.Add([]byte(
		`{"usage":{"input_tokens":0,"iterations":[{"type":"compaction","input_tokens":7,"a":[{}]},[],{"input_tokens":2,"type":"message"}]}}`),
		uint16(40))
	f.Add([]byte(
		`{"choices":[{"finish_reason":null}],"delta":{"stop_reason":"a"},"usage":{"prompt_tokens":1,"total_tokens":2}}`),
		uint16(30))

	f.Add([]byte(`{"eval_count":3,"usage":{"tokens":{"input_tokens":2},"billed_units":{"input_tokens":1}}}`), uint16(9))
	f.Add([]byte("\x00\x00\x00\x12\x00\x00\x00\x00____{}____\x00\x00\x00\x01"), uint16(13))

	f.Fuzz(func(t *testing.T, text []byte, at uint16) {
		// However a text is cut, the meter ends in the same state.
		var whole, halves, bytewise Meter
		_, _ = whole.Write(text)
		i := min(int(at), len(text))
		_, _ = halves.Write(text[:i])
		_, _ = halves.Write(text[i:])

		for i := range text {
			_, _ = bytewise.Write(text[i : i+1])
		}

		if whole != halves || whole != bytewise {
			t.Fatalf("%+v whole, %+v cut at byte %d, %+v byte by byte", whole, halves, i, bytewise)
		}

		// encoding/json is the oracle for what is one whole object.
		if want, ok := reference(text); ok {
			if got := whole.json.counts; got != want {
				t.Fatalf("%+v, and encoding/json reads %+v", got, want)
			}
		}

		// The counts of any text are sound, and no usage has none.
		got, err := whole.Usage()
		if got.Input < 0 || got.Output < 0 || got.Total < 0 || got != (Usage{}) && errors.Is(err, ErrNoUsage) {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func TestReference(t *testing.T) {
	for _, r := range recorded {
		if strings.HasSuffix(r.file, ".json") {
			c, ok := reference([]byte(load(t, r.file)))
			if got := c.usage(); got != r.want || !ok {
				t.Errorf("%s: %+v, %t", r.file, got, ok)
			}
		}
	}
	if _, ok := reference([]byte("data: {}")); ok {
		t.Error("a stream is not for the reference")
	}
}
