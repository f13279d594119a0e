package llmusage

// scanner finds the counts of a usage in JSON objects that come one after another, in
// pieces of any size. It keeps the path to the present object as long as that can hold a
// usage, and passes everything else by counting brackets.
//
// It does not check the syntax. In text that is not JSON it may read less, and at
// the end of an event it begins anew.
//
// The next bytes are read by one of three functions:
//
//	scanText    inString: up to the end of the string
//	skip        open is 0, or skipped above 0: up to a string, the beginning of a
//	            document, or the end of what holds no usage
//	scanMember  otherwise: one byte of the last object or array of path
//
// enter and leave make path longer and shorter, and the counts of a usage become valid
// when it is left.
type scanner struct {
	path    [5]meaning // the open objects and arrays that are read, outermost first
	open    int        // how many those are
	skipped int        // brackets that are open inside of the last of them

	inString bool // inside a string
	escaped  bool // after a backslash in a string

	// The first length letters are those of the last string. There is room for one more than the
	// longest name of a model has, which is longer than each key. A string that fills it is cut, or
	// is one that can be no key.
	letters [MaxModel + 1]byte
	length  int
	model   modelName // that was reported last

	member meaning // the present member of path's last object
	number number
	n      int64 // the number's value

	present counts // what the usage that is open has reported so far
	entry   call   // what the iteration that is open has reported so far
	apart   bool   // its counts have to be added, because its kind is one that no usage includes
	counts  counts // of all usages

	inArray  bool  // the present object is an element of an array
	chunks   bool  // there was such an array, so the answer may be a stream of Gemini
	event    event // what the present object says of the answer
	final    bool  // a usage was not that of a message_start
	goesOn   bool  // the last object with a usage was of an answer that goes on
	finished bool  // the answer has said that it ends
}

// modelName is the name of a model, without letters if none was reported.
type modelName struct {
	letters [MaxModel]byte
	length  uint8
}

// event is what one object says of the answer that it is of.
type event struct {
	reports bool // it has a usage with a count above 0
	bare    bool // it has counts itself, without a usage
	ends    bool // it says that the answer ends
	goesOn  bool // it has a part of the answer, and does not say that this is the last one
	choices bool // it has a list of choices
	choice  bool // the list is not empty
}

// meaning is what a key on the way to a count means.
type meaning uint8

const (
	other meaning = iota

	// The keys of objects.
	document // the outermost object, which has no key
	response
	message
	usage
	inputDetails
	outputDetails
	units   // counts of Cohere's, of which a usage has two
	wrapper // metadata, x_groq
	delta
	choice    // an element of choices
	iteration // an element of iterations
	chunk     // an element of the array that a stream of Gemini is

	// The keys of arrays of objects.
	choices
	iterations

	// The keys of texts.
	kind   // of an iteration
	status // of a response
	reason // why an answer ends; a text that any answer has that ends
	model  // the name of the model

	// The keys of counts.
	prompt
	input
	output
	total
	cacheRead
	cacheWrite
	cached
	reasoning

	// The counts that a prompt or an output leaves out.
	inputBeside
	reasoningBeside

	// The counts of the calls that a usage does not include.
	apartInput
	apartOutput
	apartRead
	apartWrite
	meaningCount
)

// meaningOf returns the meaning of a key in an object.
func meaningOf(object meaning, key []byte) meaning {
	// The objects with many keys are read without a map, which every key of an answer would ask.
	switch object {
	case document:
		return documentMeaning(key)
	case usage:
		return usageMeaning(key)
	case iteration:
		return iterationMeaning(key)
	case chunk:
		return geminiMeaning(key)
	}

	if w, ok := within[object][string(key)]; ok {
		return w
	}
	return other
}

// within are the meanings of keys in objects that have few.
var within = map[meaning]map[string]meaning{
	response:      {"usage": usage, "status": status, "meta": usage, "token_count": usage, "model": model},
	message:       {"usage": usage, "model": model},
	inputDetails:  {"cached_tokens": cached},
	outputDetails: {"reasoning_tokens": reasoning, "thinking_tokens": reasoning},
	units:         {"input_tokens": prompt, "output_tokens": output},
	wrapper:       {"usage": usage},
	choice:        {"finish_reason": reason, "finishReason": reason, "usage": usage}, // Moonshot's
	delta:         {"stop_reason": reason, "finish_reason": reason, "usage": usage},  // Cohere's
}

// documentMeaning returns the meaning of a key in a document.
func documentMeaning(key []byte) meaning {
	switch string(key) {
	case "usage", "meta":
		return usage // chat completions, messages, message_delta, Converse; meta is Cohere's
	case "metadata", "x_groq":
		return wrapper // events of ConverseStream, as the SDKs write them; chunks of Groq

	// The statistics of Ollama.
	case "prompt_eval_count":
		return prompt
	case "eval_count":
		return output

	case "response":
		return response // events of OpenAI's responses
	case "message":
		return message // message_start
	case "model":
		return model

	// What says whether the answer goes on.
	case "choices":
		return choices
	case "delta":
		return delta // message_delta
	case "stopReason":
		return reason // messageStop of ConverseStream
	}
	return geminiMeaning(key)
}

// geminiMeaning returns the meaning of a key in an answer of Gemini.
func geminiMeaning(key []byte) meaning {
	switch string(key) {
	case "usageMetadata":
		return usage
	case "candidates":
		return choices
	case "modelVersion":
		return model
	}
	return other
}

// iterationMeaning returns the meaning of a key in an iteration of a usage.
func iterationMeaning(key []byte) meaning {
	if string(key) == "type" {
		return kind
	}
	if w := usageMeaning(key); w >= prompt {
		return w
	}
	return other
}

// usageMeaning returns the meaning of a key in a usage.
func usageMeaning(key []byte) meaning {
	switch string(key) {
	// A prompt includes the tokens of caches, and an input of Anthropic does not.
	case "prompt_tokens":
		return prompt
	case "input_tokens":
		return input
	case "completion_tokens", "output_tokens", "response_tokens":
		return output
	case "total_tokens":
		return total

	case "cache_read_input_tokens":
		return cacheRead
	case "cache_creation_input_tokens":
		return cacheWrite

	case "prompt_tokens_details", "input_tokens_details":
		return inputDetails
	case "completion_tokens_details", "output_tokens_details":
		return outputDetails
	case "reasoning_tokens":
		return reasoning
	case "iterations":
		return iterations
	}
	return vendorMeaning(key)
}

// vendorMeaning returns the meaning of a key in a usage that only one vendor writes.
func vendorMeaning(key []byte) meaning {
	switch string(key) {
	// Bedrock's Converse counts as Anthropic does.
	case "inputTokens":
		return input
	case "outputTokens", "candidatesTokenCount":
		return output
	case "totalTokens", "totalTokenCount":
		return total
	case "cacheReadInputTokens":
		return cacheRead
	case "cacheWriteInputTokens":
		return cacheWrite

	// Gemini's prompt includes what is cached, and not what tools have added. Its candidates leave
	// out the thoughts.
	case "promptTokenCount":
		return prompt
	case "toolUsePromptTokenCount", "citation_tokens": // of Perplexity
		return inputBeside
	case "thoughtsTokenCount":
		return reasoningBeside

	// Gemini, DeepSeek and Moonshot.
	case "cachedContentTokenCount", "prompt_cache_hit_tokens", "cached_tokens":
		return cached

	case "billed_units", "tokens":
		return units
	}
	return other
}

// number is how far the number of a member was read.
type number uint8

const (
	none    number = iota
	digits         // it may have further digits
	whole          // a space follows it
	invalid        // it is no count: null, a fraction, below 0, or 2^53 and above
	isText         // it is a text, which letters holds
)

// maxCount is the largest count, as in the rest of headgate.
const maxCount = 1<<53 - 1

// reset forgets the present object, and keeps the counts.
func (s *scanner) reset() {
	*s = scanner{counts: s.counts, final: s.final, goesOn: s.goesOn, finished: s.finished, chunks: s.chunks,
		model: s.model}
}

// scan reads the next bytes.
func (s *scanner) scan(p []byte) {
	for len(p) > 0 {
		n := 1
		switch {
		case s.inString:
			n = s.scanText(p)
		case s.open == 0 || s.skipped > 0:
			n = s.skip(p)
		default:
			s.scanMember(p[0])
		}
		p = p[n:]
	}
}

// scanText reads a string up to its end, and returns the number of bytes read.
func (s *scanner) scanText(p []byte) int {
	for i, c := range p {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '"':
			s.inString = false
			return i + 1
		case c == '\\':
			s.escaped = true
			s.length = len(s.letters) // no key of a count has an escape
		case s.length < len(s.letters):
			s.letters[s.length] = c
			s.length++
		}
	}

	return len(p)
}

// skip reads what holds no usage, up to a string or an object that may hold one, and
// returns the number of bytes read.
func (s *scanner) skip(p []byte) int {
	for i, c := range p {
		switch c {
		case '"':
			// A string that is passed is no key, so none of its letters are kept.
			s.inString, s.length = true, len(s.letters)
			return i + 1

		case '{':
			if s.open == 0 && s.skipped == 0 {
				s.beginText()
				return i + 1
			}
			s.skipped++
		case '[':
			if s.open == 0 && s.skipped == 0 && !s.inArray {
				s.inArray, s.chunks = true, true
				continue
			}
			s.skipped++
		case '}', ']':
			if s.skipped == 0 {
				s.inArray = false
			}

			// A bracket that was never opened is passed too: the text is not JSON.
			s.skipped = max(0, s.skipped-1)
			if s.skipped == 0 {
				return i + 1
			}
		}
	}
	return len(p)
}

// beginText begins an object that is not in another one.
func (s *scanner) beginText() {
	if s.inArray {
		s.enter(chunk)
		return
	}
	s.enter(document)
}

// scanMember reads the next byte of an object or array that is on the path.
func (s *scanner) scanMember(c byte) {
	top := s.path[s.open-1]
	switch c {
	case '"':
		// A key or a value: only the value comes after a key with a meaning.
		s.inString, s.length = true, 0
		if s.member != other {
			s.number = isText
		}
	case ':':
		s.member, s.number = meaningOf(top, s.letters[:s.length]), none
	case ',':
		s.endMember()

	// Only the objects and arrays that lead to a usage are on the path.
	case '{':
		s.beginObject(top)
	case '[':
		if s.member == choices || s.member == iterations {
			s.enter(s.member)
		} else {
			s.skipped++
		}
	case '}':
		s.endMember()
		s.leave()
	case ']':
		if top == choices || top == iterations {
			s.leave()
			return
		}

		// No array of the path has ended, so the text is not JSON.
		s.number = invalid

	case ' ', '\t', '\r', '\n':
		if s.number == digits {
			s.number = whole
		}

	default:
		s.scanNumber(c)
	}
}

// beginObject begins an object in top, the last object or array of the path.
func (s *scanner) beginObject(top meaning) {
	switch {
	case top == choices:
		s.enter(choice)
	case top == iterations:
		s.enter(iteration)
	case s.member >= response && s.member <= delta:
		s.enter(s.member)
	default:
		s.skipped++
	}
}

// scanNumber reads the next byte of a number, or of true, false and null.
func (s *scanner) scanNumber(c byte) {
	switch {
	case c < '0' || c > '9' || s.number > digits:
		s.number = invalid
		return
	case s.number == none:
		s.n = 0
	}

	s.number = digits
	s.n = 10*s.n + int64(c-'0')
	if s.n > maxCount {
		s.number = invalid
	}
}

// endMember takes the count or the text that a member holds.
func (s *scanner) endMember() {
	switch {
	case s.number == isText:
		s.endText(s.letters[:s.length])
	case s.member < prompt || s.number != digits && s.number != whole:
	case s.path[s.open-1] == iteration:
		s.entry.set(s.member, s.n)
	case s.path[s.open-1] == units:
		s.present.raise(s.member, s.n)
	case s.path[s.open-1] == document:
		s.counts.setBare(s.member, s.n)
		s.event.bare, s.event.reports = true, s.event.reports || s.n > 0
	default:
		s.present.set(s.member, s.n)
	}
	s.member, s.number = other, none
}

// endText takes the text that a member holds, which is cut if it is longer than any key.
func (s *scanner) endText(value []byte) {
	switch s.member {
	case kind:
		s.apart = string(value) == "compaction" || string(value) == "advisor_message"
	case model:
		if len(value) > 0 && len(value) <= MaxModel {
			s.model.length = uint8(copy(s.model.letters[:], value))
		}
	case status:
		if string(value) == "in_progress" || string(value) == "queued" {
			s.event.goesOn = true
		} else {
			s.event.ends = true
		}
	case reason:
		s.event.ends = true
	}
}

// enter begins an object or array that is on the path.
func (s *scanner) enter(w meaning) {
	s.path[s.open] = w
	s.open++
	s.member, s.number = other, none

	// Nothing of an earlier object of the kind counts for this one.
	switch w {
	case document, chunk:
		s.event = event{}
	case usage:
		s.present = counts{}
	case iteration:
		s.entry, s.apart = call{}, false
	case delta:
		s.event.goesOn = true
	case choices:
		s.event.choices = true
	case choice:
		s.event.choice, s.event.goesOn = true, true
	}
}

// leave ends an object or array. The counts of a usage are valid at its end.
func (s *scanner) leave() {
	s.open--
	switch s.path[s.open] {
	case iteration:
		if s.apart {
			s.present.addApart(&s.entry)
		}

	case usage:
		// Without a count of the input or the output it is the usage of something else.
		if !s.present.named {
			return
		}
		s.counts.merge(&s.present)
		s.event.reports = s.present.reported()

		// A message_start comes at the beginning, and its usage is not the last.
		s.final = s.final || s.path[s.open-1] != message

	case document, chunk:
		s.finished = s.finished || s.event.ends
		s.final = s.final || s.event.bare
		if !s.event.reports {
			return
		}
		// The event with a usage and an empty list of choices is the last of an answer.
		s.finished = s.finished || s.event.choices && !s.event.choice
		s.goesOn = s.event.goesOn
	}
}

// counts are the counts of a usage. A count of 0 is as good as none: servers write it
// where they do not know, or have reported before.
type counts struct {
	named bool // a count of the input or of the output was given
	stale bool // the total is that of an earlier usage than the other counts
	n     [meaningCount - prompt]int64
}

// countFor returns the count that a key means.
func (c *counts) countFor(w meaning) int64 { return c.n[w-prompt] }

// set sets a count, unless n is 0.
func (c *counts) set(w meaning, n int64) {
	c.named = c.named || w == prompt || w == input || w == output
	if n > 0 {
		c.n[w-prompt] = n
	}
}

// raise sets a count, unless it is larger.
func (c *counts) raise(w meaning, n int64) { c.set(w, max(n, c.countFor(w))) }

// setBare sets a count that stands by itself, so that no total is beside it.
func (c *counts) setBare(w meaning, n int64) {
	c.set(w, n)
	c.stale = c.stale || n > 0
}

// reported reports whether a usage has a count above 0.
func (c *counts) reported() bool { return c.named && c.n != [meaningCount - prompt]int64{} }

// merge replaces counts by later ones.
func (c *counts) merge(later *counts) {
	c.named = c.named || later.named
	switch {
	case later.countFor(total) > 0:
		c.stale = false
	case later.reported():
		c.stale = true
	}

	for w := prompt; w < meaningCount; w++ {
		c.set(w, later.countFor(w))
	}
}

// call are the counts of one iteration, which are those up to cacheWrite.
type call struct {
	named bool
	n     [cacheWrite - prompt + 1]int64
}

// countFor returns the count that a key means.
func (c *call) countFor(w meaning) int64 { return c.n[w-prompt] }

// set sets a count, unless n is 0 or a call has no such count.
func (c *call) set(w meaning, n int64) {
	c.named = c.named || w == prompt || w == input || w == output
	if n > 0 && w <= cacheWrite {
		c.n[w-prompt] = n
	}
}

// addApart adds the counts of a call that the other counts do not include.
func (c *counts) addApart(call *call) {
	c.named = c.named || call.named
	for _, pair := range [...][2]meaning{
		{apartInput, input}, {apartOutput, output}, {apartRead, cacheRead}, {apartWrite, cacheWrite},
	} {
		c.set(pair[0], min(c.countFor(pair[0])+call.countFor(pair[1]), maxCount))
	}
}

// usage returns the counts in the terms of Usage.
func (c *counts) usage() Usage {
	u := Usage{
		Input:      c.countFor(prompt),
		Output:     c.countFor(output),
		Total:      c.countFor(total),
		CacheRead:  c.countFor(cacheRead),
		CacheWrite: c.countFor(cacheWrite),
		Reasoning:  c.countFor(reasoning),
	}

	// Anthropic and Bedrock report the parts of the input apart, and the others the whole.
	added := c.addBeside(&u)
	if n := c.countFor(cached); n > 0 {
		u.CacheRead = n
	}

	// Calls that a usage does not include are added to its counts.
	added += c.includeReasoning(&u) + c.countFor(apartOutput)
	u.Output += c.countFor(apartOutput)
	if n := c.countFor(apartInput) + c.countFor(apartRead) + c.countFor(apartWrite); n > 0 {
		u.Input, added = u.Input+n, added+n
		u.CacheRead += c.countFor(apartRead)
		u.CacheWrite += c.countFor(apartWrite)
	}

	// A total that was reported stands, unless it cannot be that of these counts.
	if sum := u.Input + u.Output; u.Total == 0 || u.Total < sum && (c.stale || added > 0) {
		u.Total = sum
	}
	return u
}

// addBeside adds the parts that the input and the output leave out, and returns their number.
func (c *counts) addBeside(u *Usage) (added int64) {
	if u.Input == 0 {
		added = u.CacheRead + u.CacheWrite
		u.Input = c.countFor(input) + added
	}

	more, thoughts := c.countFor(inputBeside), c.countFor(reasoningBeside)
	u.Input += more
	u.Output += thoughts
	u.Reasoning += thoughts
	return added + more + thoughts
}

// includeReasoning adds the tokens of reasoning that the output has been reported without,
// and returns their number. It does so only where the numbers prove it.
func (c *counts) includeReasoning(u *Usage) int64 {
	var n int64
	hasTotal := u.Total > 0 && !c.stale
	switch {
	case hasTotal && u.Total == u.Input+u.Output+u.Reasoning, u.Reasoning > u.Output:
		n = u.Reasoning
	case hasTotal && u.Output == 0 && u.Input > 0:
		n = max(0, u.Total-u.Input)
	}

	u.Output += n
	return n
}
