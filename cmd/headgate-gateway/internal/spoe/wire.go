// This file reads and writes the frames of SPOP, the protocol of HAProxy's SPOE, as its
// SPOE.txt defines them.

package spoe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
)

// The types of frames.
const (
	haproxyHello      = 1
	haproxyDisconnect = 2
	notify            = 3
	agentHello        = 101
	agentDisconnect   = 102
	ack               = 103
)

// final is the flag of a frame whose payload is not continued in another.
const final = 1

// The types of values. The upper four bits of the byte are flags.
const (
	typeNull = iota
	typeBool
	typeInt32
	typeUint32
	typeInt64
	typeUint64
	typeIPv4
	typeIPv6
	typeString
	typeBinary

	typeMask = 0x0f
	flagTrue = 0x10
)

// The parts of an action that sets a variable of the transaction.
const (
	setVariable      = 1
	setVariableArgs  = 3
	scopeTransaction = 2
)

// status is why a connection ends, as an AGENT-DISCONNECT says.
type status uint32

const (
	normal               status = 0
	tooBig               status = 3
	invalidFrame         status = 4
	noVersion            status = 5
	noFrameSize          status = 6
	noCapabilities       status = 7
	unsupportedVersion   status = 8
	badFrameSize         status = 9
	noFragmentation      status = 10
	unknownFailureStatus status = 99
)

// fault is why the agent ends a connection. Its text holds nothing that the peer sent.
type fault struct {
	status status
	text   string
}

func (f *fault) Error() string { return f.text }

// Frames are bounded: HAProxy needs 256 bytes at least, and sends tune.bufsize, 16 KiB by
// default, at most.
const (
	minFrame = 256
	maxFrame = 64 << 10
)

// lengthBytes is the size of the length that precedes a frame.
const lengthBytes = 4

// frame is a frame that was received. Its payload is not read yet.
type frame struct {
	kind          byte
	flags         uint32
	stream, frame uint64
	payload       string
}

// readFrame reads a frame of at most max bytes.
func readFrame(r io.Reader, max uint32) (frame, error) {
	var prefix [lengthBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(prefix[:])
	if n > max {
		return frame{}, &fault{tooBig, "a frame is longer than was agreed"}
	}

	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}

	return parseFrame(string(b))
}

// metadataBytes is the shortest that type, flags and both identifiers may be.
const metadataBytes = 7

func parseFrame(s string) (f frame, err error) {
	if len(s) < metadataBytes {
		return f, errInvalid
	}
	p := parser{rest: s[5:]}
	f.kind, f.flags = s[0], binary.BigEndian.Uint32([]byte(s[1:5]))
	f.stream, f.frame = p.varint(), p.varint()
	f.payload = p.rest
	return f, p.err
}

var errInvalid = &fault{invalidFrame, "a frame is not valid"}

// parser reads what a payload is made of. After the first mistake it returns zero values.
// Texts are parts of the payload.
type parser struct {
	rest string
	err  error
}

func (p *parser) fail() {
	p.err, p.rest = errInvalid, ""
}

func (p *parser) byte() byte {
	if p.rest == "" {
		p.fail()
		return 0
	}
	b := p.rest[0]
	p.rest = p.rest[1:]
	return b
}

// varint reads an integer: one byte below 240, or else four bits in the first byte and
// seven in each that follows, while their highest bit is set.
func (p *parser) varint() uint64 {
	const singleByteEnd = 240
	v := uint64(p.byte())
	if v < singleByteEnd {
		return v
	}

	// An integer of more than 64 bits is no valid one, nor is one that does not end.
	for shift := 4; p.rest != "" && shift <= 60; shift += 7 {
		b := uint64(p.byte())
		if b > (math.MaxUint64-v)>>shift {
			break
		}
		if v += b << shift; b < 0x80 {
			return v
		}
	}
	p.fail()
	return 0
}

func (p *parser) text() string {
	n := p.varint()
	if n > uint64(len(p.rest)) {
		p.fail()
		return ""
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

// value is a typed value: a text, an address, an integer or a truth value, by its kind.
type value struct {
	kind    byte
	text    string
	address netip.Addr
	number  uint64
}

func (p *parser) value() (v value) {
	kind := p.byte()
	v.kind = kind & typeMask

	switch v.kind {
	case typeNull:
	case typeBool:
		v.number = uint64(kind&flagTrue) / flagTrue
	case typeInt32, typeUint32, typeInt64, typeUint64:
		v.number = p.varint()
	case typeIPv4, typeIPv6:
		size := 4
		if v.kind == typeIPv6 {
			size = 16
		}
		if len(p.rest) < size {
			p.fail()
			return value{}
		}
		v.address, _ = netip.AddrFromSlice([]byte(p.rest[:size])) // of a valid size
		p.rest = p.rest[size:]
	case typeString, typeBinary:
		v.text = p.text()
	default:
		p.fail()
	}
	return v
}

// pairs calls each with the names and values until the payload ends.
func (p *parser) pairs(each func(name string, v value)) error {
	for p.rest != "" && p.err == nil {
		name, v := p.text(), p.value()
		if p.err == nil {
			each(name, v)
		}
	}
	return p.err
}

// appendVarint appends what [parser.varint] reads.
func appendVarint(b []byte, v uint64) []byte {
	if v < 240 {
		return append(b, byte(v))
	}
	b = append(b, byte(v)|0xf0)
	for v = (v - 240) >> 4; v >= 0x80; v = (v - 0x80) >> 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(appendVarint(b, uint64(len(s))), s...)
}

// beginFrame begins a frame, whose length endFrame fills in.
func beginFrame(b []byte, kind byte, stream, number uint64) []byte {
	b = append(b, 0, 0, 0, 0, kind, 0, 0, 0, final)
	return appendVarint(appendVarint(b, stream), number)
}

// endFrame ends the frame that b begins with.
func endFrame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthBytes))
	return b
}

// appendPair appends a pair of a name and a value.
func appendPair(b []byte, name string, v any) []byte {
	return appendValue(appendText(b, name), v)
}

// appendValue appends a bool, an int64 that is not negative, a uint32 or a text.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, typeBool|flagTrue)
		}
		return append(b, typeBool)
	case int64:
		return appendVarint(append(b, typeInt64), uint64(v))
	case uint32:
		return appendVarint(append(b, typeUint32), uint64(v))
	case []byte:
		return appendText(append(b, typeString), v)
	case string:
		return appendText(append(b, typeString), v)
	}
	panic(fmt.Sprintf("spoe: a value of the type %T", v)) // of this package's own code
}

// appendSet appends the action that sets a variable of the transaction.
func appendSet(b []byte, name string, v any) []byte {
	b = append(b, setVariable, setVariableArgs, scopeTransaction)
	return appendPair(b, name, v)
}

// appendDisconnect appends a frame that ends the connection.
func appendDisconnect(b []byte, why status, text string) []byte {
	b = beginFrame(b, agentDisconnect, 0, 0)
	b = appendPair(b, "status-code", uint32(why))
	return endFrame(appendPair(b, "message", text))
}
