package llmusage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// models are the models that recorded answers report.
var models = map[string]string{
	"chat.json": "gpt-5", "chat.sse": "gpt-5", "responses.json": "gpt-4.1", "responses.sse": "gpt-4.1",
	"messages.json": "claude-sonnet-4-5", "messages.sse": "claude-sonnet-4-5", "messages_tools.sse": "claude-sonnet-4-5",
	"embeddings.json": "text-embedding-3-small", "azure.sse": "gpt-4o", "gemini.json": "gemini-2.5-flash",
	"gemini.sse": "gemini-2.5-flash", "gemini.chunks": "gemini-2.5-flash", "gemini_tools.json": "gemini-2.5-pro",
	"vertex.json": "gemini-2.0-flash-001", "ollama.json": "llama3.2", "ollama.jsonl": "llama3.2",
	"converse.json": "", "converse.frames": "", "cohere.sse": "", // which do not report it
}

func TestModelOfAnAnswer(t *testing.T) {
	for file, want := range models {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}

		// However the answer is cut, the name is whole.
		for _, size := range []int{1, 7, len(text)} {
			var m Meter
			for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				_, _ = m.Write(rest[:min(size, len(rest))])
			}

			if got := m.Model(); got != want {
				t.Errorf("%s in pieces of %d: %q, want %q", file, size, got, want)
			}
		}
	}
}

// The name is bounded, and what is no name leaves the one before.
func TestModelIsBounded(t *testing.T) {
	longest := strings.Repeat("m", MaxModel)
	for text, want := range map[string]string{
		`{"model":"` + longest + `"}`:        longest,
		`{"model":"` + longest + `m"}`:       "",
		`{"model":"a\"b"}`:                   "",
		`{"model":7}`:                        "",
		`{"model":{"model":"b"}}`:            "",
		`{"choices":[{"model":"b"}]}`:        "",
		`{"model":"a"}{"model":""}`:          "a",
		`{"model":"a"}{"model":"bb"}`:        "bb",
		`{"model":"a"}{"modelVersion":null}`: "a",
	} {
		var m Meter
		_, _ = m.Write([]byte(text))

		if got := m.Model(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTokensOfARequest(t *testing.T) {
	for body, want := range map[string]int64{
		// Without a number the caller's own counts, and without a body nothing else.
		"":                    1000,
		"no object":           1000 + 2,
		`{"prompt": "hello"}`: 1000 + 4,

		`{"max_tokens": 50}`:                                    50 + 4,
		`{"max_completion_tokens": 50}`:                         50 + 7,
		`{"max_output_tokens": 50.2}`:                           51 + 6,
		`{"max_tokens": 50, "max_output_tokens": 70}`:           70 + 10,
		`{"max_tokens": 50, "n": 3}`:                            150 + 6,
		`{"n": 2, "best_of": 3}`:                                3000 + 5,
		`{"max_tokens": null, "n": null}`:                       1000 + 7,
		`{"max_tokens": -1, "n": -4}`:                           1000 + 6,
		`{"max_tokens": 0}`:                                     1000 + 4,
		`{"generationConfig": {"maxOutputTokens": 9}}`:          9 + 11,
		`{"generationConfig": {"candidateCount": 2}}`:           2000 + 10,
		`{"inferenceConfig": {"maxTokens": 9}}`:                 9 + 9,
		`{"options": {"num_predict": 9}}`:                       9 + 7,
		`{"options": 5}`:                                        1000 + 3,
		`{"MAX_TOKENS": 5}`:                                     1000 + 4,
		`{"max_tokens": "50"}`:                                  maxCount,
		`{"max_tokens": [1]}`:                                   maxCount,
		`{"max_tokens": 1e300}`:                                 maxCount,
		`{"max_tokens": 4503599627370496, "n": 2}`:              maxCount,
		`{"max_tokens": 9007199254740991, "n": 9007199254740}`:  maxCount,
		`{"max_tokens": 5` + strings.Repeat(" ", 100_000) + "}": 5 + 25_004,
	} {
		if got := ReadRequest([]byte(body)).Tokens(1000); got != want {
			t.Errorf("%.60s: %d tokens, want %d", body, got, want)
		}
	}
}

func TestModelOfARequest(t *testing.T) {
	for body, want := range map[string]string{
		`{"model": "gpt-5", "max_tokens": 7}`: "gpt-5",
		`{"model": 5}`:                        "",
		`[]`:                                  "",
		fmt.Sprintf(`{"model": %q}`, strings.Repeat("m", MaxModel+1)): "",
		fmt.Sprintf(`{"model": %q}`, strings.Repeat("m", MaxModel)):   strings.Repeat("m", MaxModel),
	} {
		if got := ReadRequest([]byte(body)).Model; got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
