package faultproxy

import "time"

// Fault is how a proxy misbehaves. The zero value passes everything on
// unchanged. Several fields may be set together.
//
// CutRequest, CutReply, Drop, Garbage and Late apply to calls of scripts alone, so
// that clients can open connections meanwhile.
type Fault struct {
	// Nth picks the n-th script call after Set, over all connections; 0 picks
	// every one.
	Nth int

	// Every, unless 0, picks each n-th script call after Set instead.
	Every int

	// CutRequest passes the bytes of a picked call before the cut on, and then
	// ends the connections on both sides. CutReply does the same with its reply.
	CutRequest, CutReply Cut

	// Abort makes a cut a reset (RST) for the client instead of an end (FIN).
	Abort bool

	// Drop swallows the reply to a picked call. The connection stays open.
	Drop bool

	// Garbage, unless "", is sent in place of the reply to a picked call.
	Garbage string

	// Late holds back the reply to a picked call, and so those behind it on its connection.
	Late time.Duration

	// Delay and Jitter hold back every reply: by Delay and a random time below
	// Jitter. Replies do not overtake each other.
	Delay, Jitter time.Duration

	// Life, unless 0, ends each connection after a random number of bytes below
	// Life, which both directions share. That is usually in the middle of a
	// message. Open connections get their number when the fault is set.
	Life int

	// Rate is how many bytes a second pass to each client; 0 means no bound.
	Rate int

	// Silent swallows everything in both directions and accepts connections, as
	// if the peer had vanished. A connection that was silent stays silent,
	// whatever is set later, until its client gives up.
	Silent bool

	// Reset resets every connection, new ones included.
	Reset bool

	// Refuse closes the port: connections end, and new ones are refused.
	Refuse bool

	// Blackhole leaves attempts to connect without any answer, even a refusal,
	// and is Silent on open connections.
	Blackhole bool
}

// Cut is a place in a message; see [After]. The zero value means none.
type Cut int

// After is the place after byte n of a message: 0 is before the first. A place
// beyond the end is the end.
func After(n int) Cut { return Cut(n + 1) }

// head returns the part of the message before the cut.
func (c Cut) head(message []byte) []byte { return message[:min(int(c)-1, len(message))] }

// picks reports whether the fault picks the n-th call.
func (f *Fault) picks(n int) bool {
	if f.Every > 0 {
		return n%f.Every == 0
	}
	return f.Nth == 0 || f.Nth == n
}

// mute reports whether the fault lets nothing pass.
func (f *Fault) mute() bool { return f.Silent || f.Blackhole }
