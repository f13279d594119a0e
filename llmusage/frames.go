package llmusage

import "encoding/binary"

// frames splits an AWS event stream into frames and hands the payload of each to a scanner. A
// frame has its length, that of its headers and a checksum of both, then the headers, the payload
// and a checksum, which are not compared. Source: Amazon Transcribe, "Event stream encoding".
type frames struct {
	head   [frameHead]byte
	at     uint32 // bytes of the frame that were read
	broken bool   // a frame has lengths that cannot be: what follows is not read
}

const (
	frameHead = 12
	frameSum  = 4

	// maxFrame is more than the longest frame that AWS allows, which has 24 MiB.
	maxFrame = 1 << 25
)

// split reads the next bytes of a stream.
func (f *frames) split(p []byte, s *scanner) {
	for len(p) > 0 && !f.broken {
		var n int
		if f.at < frameHead {
			n = copy(f.head[f.at:], p)
			f.at += uint32(n)
		} else {
			n = f.readBody(p, s)
		}
		p = p[n:]
	}
}

// readBody reads bytes of the frame behind its head, and returns how many. The end of a frame is
// the end of an event.
func (f *frames) readBody(p []byte, s *scanner) int {
	size, headers := binary.BigEndian.Uint32(f.head[:]), binary.BigEndian.Uint32(f.head[4:])
	if size > maxFrame || headers > maxFrame || size < frameHead+headers+frameSum {
		f.broken = true
		return len(p)
	}

	// A part may be empty, and a checksum is behind each payload.
	end := size
	switch payload, sum := frameHead+headers, size-frameSum; {
	case f.at < payload:
		end = payload
	case f.at < sum:
		end = sum
		s.scan(p[:min(len(p), int(end-f.at))])
	}

	n := min(len(p), int(end-f.at))
	if f.at += uint32(n); f.at == size {
		f.at = 0
		s.reset()
	}
	return n
}
