package llmusage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostile are bodies of a megabyte that are dear to read for some reader.
func hostile() map[string]string {
	const size = 1 << 20
	many := func(open, close string, f func(i int) string) string {
		var b strings.Builder
		b.WriteString(open)
		for i := 0; b.Len() < size-64; i++ {
			b.WriteString(f(i))
			b.WriteByte(',')
		}
		return strings.TrimSuffix(b.String(), ",") + close
	}

	always := func(text string) func(int) string { return func(int) string { return text } }
	numbered := func(i int) string { return fmt.Sprintf(`"%d":1`, i) }

	// Each is dear in another place.
	return map[string]string{
		"names":            many("{", "}", numbered),
		"names of a table": many(`{"options":{`, "}}", numbered),
		"empty names":      many("{", "}", always(`"":0`)),
		"escaped names":    many("{", "}", always(`"\u006e":1`)),
		"numbers":          many("{", "}", always(`"n":1`)),
		"tables":           many("{", "}", always(`"options":{"n":1}`)),
		"models":           many("{", "}", always(`"model":"a"`)),
		"zeros":            many(`{"a":[`, "]}", always("0")),
		"a long number":    `{"n":` + strings.Repeat("1", size-20) + "}",
		"a long fraction":  `{"n":0.` + strings.Repeat("1", size-20) + "}",
		"a long text":      `{"a":"` + strings.Repeat("x", size-20) + `"}`,
		"backslashes":      `{"a":"` + strings.Repeat(`\\`, size/2-20) + `"}`,
		"quotes":           `{"a":"` + strings.Repeat(`\"`, size/2-20) + `"}`,
		"a long model":     `{"model":"` + strings.Repeat(`\u0041`, size/6-20) + `"}`,
		"space":            "{" + strings.Repeat(" ", size-20) + "}",
		"brackets":         strings.Repeat("[", size),
		"objects":          strings.Repeat(`{"options":`, size/11),
		"nested":           `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}",
	}
}

// Nothing is kept of a body but what is asked for, so no body of a megabyte takes memory or long.
func TestHostileBodiesTakeNoMemory(t *testing.T) {
	for name, text := range hostile() {
		body := []byte(text)

		// Those are of the error about a body that is nested too deep.
		if n := testing.AllocsPerRun(1, func() { ReadRequest(body) }); n > 30 {

			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkHostileBodies(b *testing.B) {
	for name, text := range hostile() {
		b.Run(name, func(b *testing.B) {
			body := []byte(text)

			for b.Loop() {
				ReadRequest(body)
			}
		})
	}
}

func TestRequestIsReadHoweverItIsWritten(t *testing.T) {
	unbounded := fmt.Sprint(" ", int64(maxCount), " 0")
	for body, want := range map[string]string{
		" {\n\t\"n\" :\r 2 , \"max_tokens\":3.5 } ":     " 4 2",
		`{"\u006e":2,"max\u005ftokens":3}`:              " 3 2",
		`{"\u006E":2,"a\n":1,"\\":1,"\"n":5}`:           " 0 2",
		`{"n\"":9,"":9,"x":"\"n\":9","n":2}`:            " 0 2",
		`{"a":{"n":9},"b":[{"n":9},"}"],"c":"{","n":1}`: " 0 1",
		`{"n":5,"n":3}`: " 0 5", // an API may read either
		`{"options":{"num_predict":7},"options":{"num_predict":5}}`: " 7 0",
		`{"options":[{"num_predict":7}]}`:                           " 0 0",

		// A name that has a number and none may mean either to an API.
		`{"max_tokens":5,"max_tokens":null}`:                                                                unbounded,
		`{"max_tokens":-1,"max_tokens":5}`:                                                                  unbounded,
		`{"max_tokens":0,"max_tokens":null}`:                                                                " 0 0",
		`{"max_tokens":5,"max_completion_tokens":null,"max_output_tokens":-1}`:                              " 5 0",
		`{"max_output_tokens":null,"options":{"num_predict":7,"maxOutputTokens":-1,"max_output_tokens":3}}`: " 7 0",
		`{"options":{"num_predict":7,"num_predict":-1}}`:                                                    unbounded,
		`{"options":{"num_predict":7},"options":{"num_predict":-1}}`:                                        unbounded,
		`{"options":{"num_predict":7},"options":{}}`:                                                        unbounded,
		`{"options":{},"options":{"num_predict":7}}`:                                                        unbounded,
		`{"options":{"num_predict":7},"options":null}`:                                                      unbounded,
		`{"inferenceConfig":{"maxTokens":7},"inferenceConfig":{"temperature":1}}`:                           unbounded,
		`{"generationConfig":{"maxOutputTokens":7},"generation_config":{"temperature":1}}`:                  " 7 0",
		`{"generationConfig":{"candidateCount":2},"generationConfig":{"topK":1}}`:                           " 0 2",
		`{"generationConfig":{"maxOutputTokens":7,"maxOutputTokens":null}}`:                                 unbounded,
		`{"inferenceConfig":{"maxTokens":7,"maxTokens":null}}`:                                              unbounded,
		`{"generation_config":{"max_output_tokens":null,"max_output_tokens":1}}`:                            unbounded,
		`{"max_completion_tokens":1,"max_completion_tokens":null}`:                                          unbounded,
		`{"max_output_tokens":1,"max_output_tokens":null}`:                                                  unbounded,

		`{"n":5,"n":null}`:         " 0 5", // null is one answer
		"\ufeff{\"max_tokens\":3}": " 3 0",
		"\ufeff\ufeff{\"n\":3}":    " 0 0", // no API reads two

		`{"n":true}`:                             fmt.Sprint(" 0 ", int64(maxCount)),
		`{"n":{}}`:                               fmt.Sprint(" 0 ", int64(maxCount)),
		`{"n":` + strings.Repeat("1", 500) + `}`: fmt.Sprint(" 0 ", int64(maxCount)),
		`{"n":1e999}`:                            fmt.Sprint(" 0 ", int64(maxCount)),
		`{"n":-0.5,"max_tokens":1E1}`:            " 10 0",
		`{"model":"\u0061\nb","model":"c\"d"}`:   `c"d 0 0`,
		`{"model":null}`:                         " 0 0",
		`{"n":2`:                                 " 0 0",
		`{"n":2}}`:                               " 0 0",
		`[{"n":2}]`:                              " 0 0",
		`"{"`:                                    " 0 0",
		`{"max_completion_tokens":` + "\u00a0" + `5}`:      " 0 0",
		`{"` + strings.Repeat(`\u006e`, 30) + `":1,"n":4}`: " 0 4",
		`{"n` + strings.Repeat(`\u0000`, 2) + `":1}`:       " 0 0",
		`{"\u016e":1,"\u006":1}`:                           " 0 0",
	} {
		r := ReadRequest([]byte(body))

		if got := fmt.Sprint(r.Model, " ", r.Output, " ", r.Answers); got != want {
			t.Errorf("%.60s: %s, want %s", body, got, want)
		}
	}
}

// The fields are those that the decoder finds.
func FuzzFieldsOfRequests(f *testing.F) {
	for _, seed := range []string{`{"a":1,"n":[2,{"b":"}"}],"\u006e":null}`, ` { } `, `[]`,
		`{"a\"":"\\","":{"":[]}}`, `{"n":2 , "n" :3}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]json.RawMessage

		if !json.Valid([]byte(text)) || json.Unmarshal([]byte(text), &want) != nil {
			return
		}

		got := map[string]string{}

		f := fieldsOf([]byte(text))
		for name, value, ok := f.field(); ok; name, value, ok = f.field() {
			got[string(name)] = string(value)
		}
		for _, name := range []string{"n", "a", "options", "max_tokens"} {
			if got[name] != string(want[name]) {
				t.Errorf("%q: %q is %q, want %q", text, name, got[name], want[name])
			}
		}
	})
}
