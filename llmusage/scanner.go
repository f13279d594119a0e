package llmusage

// scanner finds the counts of a usage in JSON objects that come one after another, in
// pieces of any size. It keeps the path to the present object as long as that can hold a
// usage, and passes everything else by counting brackets.
//
// It does not check the syntax. In text that is not JSON it may read less, and at
// the end of an event it begins anew.
type scanner struct {
	path    [4]word // the open objects that can hold a usage, outermost first
	open    int     // how many those are
	skipped int     // brackets that are open inside of the last of them

	text    bool // inside a string
	escape  bool // after a backslash in a string
	letters [len("cache_creation_input_tokens") + 1]byte
	length  int // how many letters of it are kept: all, or none more if it cannot be a key

	member word // the present member of path's last object
	number number
	n      int64 // the number's value

	present counts // of the usage that is open
	counts  counts // of all usages
	final   bool   // one of them was not that of a message_start
}

// word is a key that leads to a count, by its meaning.
type word uint8

const (
	other word = iota

	// The keys of objects.
	document // the outermost object, which has no key
	response
	message
	usage
	inputDetails
	outputDetails

	// The keys of counts.
	prompt
	input
	output
	total
	cacheRead
	cacheWrite
	cached
	reasoning
	words
)

// meaning returns the meaning of a key in an object.
func meaning(object word, key []byte) word {
	switch object {
	case document:
		switch string(key) {
		case "usage":
			return usage // chat completions, messages, message_delta
		case "response":
			return response // events of OpenAI's responses
		case "message":
			return message // message_start
		}
	case response, message:
		if string(key) == "usage" {
			return usage
		}
	case usage:
		return usageMeaning(key)
	case inputDetails:
		if string(key) == "cached_tokens" {
			return cached
		}
	case outputDetails:
		switch string(key) {
		case "reasoning_tokens", "thinking_tokens":
			return reasoning
		}
	}
	return other
}

// usageMeaning returns the meaning of a key in a usage.
func usageMeaning(key []byte) word {
	switch string(key) {
	case "prompt_tokens":
		return prompt
	case "input_tokens":
		return input
	case "completion_tokens", "output_tokens":
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
)

// maxCount is the largest count, as in the rest of headgate.
const maxCount = 1<<53 - 1

// reset forgets the present object, and keeps the counts.
func (s *scanner) reset() {
	*s = scanner{counts: s.counts, final: s.final}
}

// scan reads the next bytes.
func (s *scanner) scan(p []byte) {
	for len(p) > 0 {
		n := 1
		switch {
		case s.text:
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
		case s.escape:
			s.escape = false
		case c == '"':
			s.text = false
			return i + 1
		case c == '\\':
			s.escape = true
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
			s.text, s.length = true, len(s.letters)
			return i + 1
		case '{':
			if s.open == 0 && s.skipped == 0 {
				s.enter(document)
				return i + 1
			}
			s.skipped++
		case '[':
			s.skipped++
		case '}', ']':
			s.skipped = max(0, s.skipped-1)
			if s.skipped == 0 {
				return i + 1
			}
		}
	}
	return len(p)
}

// scanMember reads the next byte of an object that may hold a usage.
func (s *scanner) scanMember(c byte) {
	switch c {
	case '"':
		s.text, s.length = true, 0
	case ':':
		s.member, s.number = meaning(s.path[s.open-1], s.letters[:s.length]), none
	case ',':
		s.endMember()
	case '{':
		if s.member >= response && s.member <= outputDetails {
			s.enter(s.member)
		} else {
			s.skipped++
		}
	case '[':
		s.skipped++
	case '}':
		s.endMember()
		s.leave()
	case ' ', '\t', '\r', '\n':
		if s.number == digits {
			s.number = whole
		}
	default:
		s.scanNumber(c)
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

// endMember takes the count that a member holds.
func (s *scanner) endMember() {
	if s.member >= prompt && (s.number == digits || s.number == whole) {
		s.present.set(s.member, s.n)
	}
	s.member, s.number = other, none
}

// enter begins an object that may hold a usage.
func (s *scanner) enter(object word) {
	s.path[s.open] = object
	s.open++
	s.member, s.number = other, none
	if object == usage {
		s.present = counts{}
	}
}

// leave ends an object. The counts of a usage are valid at its end.
func (s *scanner) leave() {
	s.open--
	if s.path[s.open] == usage && s.present.reported() {
		s.counts.merge(&s.present)
		s.final = s.final || s.path[s.open-1] != message
	}
}

// counts are the counts of a usage, by the words of their keys.
type counts struct {
	known [words]bool
	n     [words]int64
}

func (c *counts) set(w word, n int64) { c.known[w], c.n[w] = true, n }

// reported reports whether the input or the output was counted.
func (c *counts) reported() bool { return c.known[prompt] || c.known[input] || c.known[output] }

// merge replaces counts by later ones.
func (c *counts) merge(later *counts) {
	for w := prompt; w < words; w++ {
		if later.known[w] {
			c.set(w, later.n[w])
		}
	}
}

func (c *counts) usage() Usage {
	u := Usage{
		Input:      c.n[prompt],
		Output:     c.n[output],
		Total:      c.n[total],
		CacheRead:  c.n[cacheRead],
		CacheWrite: c.n[cacheWrite],
		Reasoning:  c.n[reasoning],
	}
	if !c.known[prompt] {
		u.Input = c.n[input] + c.n[cacheRead] + c.n[cacheWrite]
	}
	if c.known[cached] {
		u.CacheRead = c.n[cached]
	}
	if !c.known[total] {
		u.Total = u.Input + u.Output
	}
	return u
}
