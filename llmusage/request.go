package llmusage

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
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
	// if the request names none. It is 2^53 - 1 if it is named in a form that cannot be read, or
	// twice under one name and once as none, by null or a number that is not above 0.
	Output int64

	// Answers is the number of answers that are asked for, each of which may have Output; 0 means
	// 1.
	Answers int64
}

// ReadRequest reads the body of a request to one of the APIs: max_tokens, max_completion_tokens,
// max_output_tokens, maxOutputTokens, maxTokens or num_predict, n, best_of or candidateCount, and
// model. Of a number that stands more than once the largest counts, as an API may read any. A byte
// order mark before the object is ignored, as by some APIs. What is no JSON object is for the API
// to refuse, and says nothing but its length. The time is linear in the length, whatever the body
// is: some milliseconds for a megabyte.
func ReadRequest(body []byte) Request {
	r := Request{Prompt: int64(len(body)) / 4}

	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !json.Valid(body) {
		return r
	}

	// The APIs look for the names as they are written here, and some have a table of them.
	var model []byte
	var o outputs

	f := fieldsOf(body)
	for name, value, ok := f.field(); ok; name, value, ok = f.field() {
		switch string(name) {
		case "model":
			model = value
		case "max_tokens":
			o.add(0, value)
		case "max_completion_tokens":
			o.add(1, value)
		case "max_output_tokens":
			o.add(2, value)
		case "n", "best_of":
			r.Answers = max(r.Answers, countIn(value))
		case "generationConfig":
			o.addTable(0, r.readTable(&o, value))
		case "generation_config":
			o.addTable(1, r.readTable(&o, value))
		case "inferenceConfig":
			o.addTable(2, r.readTable(&o, value))
		case "options":
			o.addTable(3, r.readTable(&o, value))
		}
	}
	r.Output = o.largest()

	// A name of one letter may take six bytes.
	if len(model) <= 6*MaxModel+2 {
		if json.Unmarshal(model, &r.Model) != nil || len(r.Model) > MaxModel {
			r.Model = ""
		}
	}
	return r
}

// readTable reads what may be a table, and returns the names of outputs that it has.
func (r *Request) readTable(all *outputs, text []byte) (names uint8) {
	var o outputs
	f := fieldsOf(text)
	for name, value, ok := f.field(); ok; name, value, ok = f.field() {
		switch string(name) {
		case "maxOutputTokens":
			o.add(3, value)
		case "max_output_tokens":
			o.add(4, value)
		case "maxTokens":
			o.add(5, value)
		case "num_predict":
			o.add(6, value)
		case "candidateCount", "candidate_count":
			r.Answers = max(r.Answers, countIn(value))
		}
	}

	all.most = max(all.most, o.most)
	all.numbers, all.nones = all.numbers|o.numbers, all.nones|o.nones
	return o.numbers | o.nones
}

// outputs are the numbers of tokens that a request names for an answer. The zero value has none.
type outputs struct {
	most           int64
	numbers, nones uint8 // of the names that have a number, and that have none: a bit each

	tables [4]uint8 // the names in each table that there was
	were   [4]bool  // which tables there were
}

// addTable notes the names in a table. Of one that is repeated an API may read either, so a name
// that stands in one of both alone has no number in the other.
func (o *outputs) addTable(table int, names uint8) {
	if o.were[table] {
		o.nones |= o.tables[table] ^ names
	}
	o.tables[table], o.were[table] = o.tables[table]|names, true
}

// add adds the value of a name, which is one of eight.
func (o *outputs) add(name int, value []byte) {
	n := countIn(value)
	o.most = max(o.most, n)
	if n > 0 {
		o.numbers |= 1 << name
	} else {
		o.nones |= 1 << name
	}
}

// largest returns the largest number that the API may read, or 0. One that reads none where there
// is a number too has no bound that the request tells.
func (o *outputs) largest() int64 {
	if o.numbers&o.nones != 0 {
		return maxCount
	}
	return o.most
}

// maxNumber is the largest length of a number that is read.
const maxNumber = 400

// countIn returns a number, rounded up, or 0 if it is not above 0 or null. One that cannot be read
// may mean any number to the API.
func countIn(value []byte) int64 {
	if n, is := digitsIn(value); is {
		return n
	}

	if string(value) == "null" {
		return 0
	}
	if len(value) > maxNumber {
		return maxCount
	}

	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n >= maxCount {
		return maxCount
	}
	return max(0, int64(math.Ceil(n)))
}

// digitsIn returns a number that is written in a few digits alone, as nearly all are.
func digitsIn(value []byte) (n int64, is bool) {
	if len(value) >= len("9007199254740991") {
		return 0, false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
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
