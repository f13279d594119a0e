package llmusage

import (
	"encoding/json"
	"math"
)

// Request is what the JSON body of a request says about the tokens that it may use. The zero value
// is that of a body that says nothing.
type Request struct {
	// Model is the name of the model, or "": none, or one with more than MaxModel bytes.
	Model string

	// Prompt is the number of tokens of the prompt, about one for four bytes of the body. What a
	// body only refers to, such as a file or an earlier answer, is not in it.
	Prompt int64

	// Output is the largest number of tokens that one answer may have, as the API enforces it, or 0
	// if the request names none. It is 2^53 - 1 if it is named in a form that cannot be read.
	Output int64

	// Answers is the number of answers that are asked for, each of which may have Output; 0 means
	// 1.
	Answers int64
}

// ReadRequest reads the body of a request to one of the APIs: max_tokens, max_completion_tokens,
// max_output_tokens, maxOutputTokens, maxTokens or num_predict, n, best_of or candidateCount, and
// model. What is no JSON object is for the API to refuse, and says nothing but its length.
func ReadRequest(body []byte) Request {
	r := Request{Prompt: int64(len(body)) / 4}
	var asked fields
	if json.Unmarshal(body, &asked) != nil {
		return r
	}

	var model string
	if json.Unmarshal(asked["model"], &model) == nil && len(model) <= MaxModel {
		r.Model = model
	}

	// The APIs look for the names as they are written here, and some have a table of them.
	output := asked.most("max_tokens", "max_completion_tokens", "max_output_tokens")
	answers := asked.most("n", "best_of")
	for _, table := range []string{"generationConfig", "generation_config", "inferenceConfig", "options"} {
		var more fields
		if json.Unmarshal(asked[table], &more) == nil {
			output = max(output, more.most("maxOutputTokens", "max_output_tokens", "maxTokens", "num_predict"))
			answers = max(answers, more.most("candidateCount", "candidate_count"))
		}
	}

	r.Output, r.Answers = output, answers
	return r
}

// fields are those of an object.
type fields map[string]json.RawMessage

// most returns the largest of the numbers, rounded up, or 0 if none is above 0. One that cannot be
// read may mean any number to the API.
func (f fields) most(names ...string) (most int64) {
	for _, name := range names {
		text, is := f[name]
		if !is {
			continue
		}
		var n float64
		if json.Unmarshal(text, &n) != nil || n >= maxCount {
			return maxCount
		}
		most = max(most, int64(math.Ceil(n)))
	}
	return most
}

// Tokens returns the largest number of tokens that the request may use, at most 2^53 - 1. other is
// that of an answer whose largest number the request does not name.
func (r Request) Tokens(other int64) int64 {
	output := r.Output
	if output == 0 {
		output = other
	}
	answers := max(1, r.Answers)
	if output > (maxCount-r.Prompt)/answers {
		return maxCount
	}
	return r.Prompt + output*answers
}
