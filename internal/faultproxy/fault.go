package faultproxy

import "time"

// Fault says how a proxy misbehaves. The zero value passes everything on as it
// is. Several fields may be set together.
//
// CutRequest, CutReply, Drop and Garbage are about calls of scripts alone, so
// that clients can open connections meanwhile.
type Fault struct {
	// Nth picks the n-th script call after Set, over all connections; 0 picks
	// every one.
	Nth int

	// CutRequest passes that many bytes of a picked call on and then ends the
	// connections on both sides. CutReply does the same with its reply.
	CutRequest, CutReply Cut

	// Abort makes a cut a reset (RST) for the client instead of an end (FIN).
	Abort bool

	// Drop swallows the reply to a picked call. The connection stays open.
	Drop bool

	// Garbage, unless "", is sent in place of the reply to a picked call.
	Garbage string

	// Delay and Jitter hold back every reply: by Delay and a random time below
	// Jitter. Replies do not overtake each other.
	Delay, Jitter time.Duration

	// Life, unless 0, ends each connection after a random number of bytes below
	// it, which both directions share: in the middle of a message as a rule.
	// Those that are open get theirs when the fault is set.
	Life int

	// Rate is how many bytes a second pass to each client; 0 means all.
	Rate int

	// Silent swallows everything in both directions and accepts connections, as
	// if the peer had gone away without a word. A connection that was silent
	// stays so, whatever is set later, until its client gives up.
	Silent bool

	// Reset resets every connection, also those that come.
	Reset bool

	// Refuse closes the port: connections end, and new ones are refused.
	Refuse bool

	// Blackhole answers no attempt to connect, not even by a refusal, and is
	// Silent on connections that are open.
	Blackhole bool
}

// Cut is a place in a message; see [After]. The zero value means none.
type Cut int

// After is the place after byte n of a message: 0 is before the first. A place
// beyond the end is the end.
func After(n int) Cut { return Cut(n + 1) }

// of returns what of the message is before the cut.
func (c Cut) of(message []byte) []byte { return message[:min(int(c)-1, len(message))] }

// mute reports whether nothing passes.
func (f *Fault) mute() bool { return f.Silent || f.Blackhole }
