package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of the memory of a reader.
const (
	maxLine      = 64 << 10
	maxHeld      = 1 << 16 // entries that wait for earlier ones
	maxHeldBytes = 64 << 20
	maxShown     = 3   // broken lines
	maxText      = 120 // bytes of a broken line
	sampleSize   = 64 << 10
	keptLine     = 4 << 10 // memory of an entry that is used again
)

// maxJump is how far a line may be after those before it in microseconds, unless the next is too.
const maxJump = 7 * 24 * int64(time.Hour/time.Microsecond)

// Options configure a [Reader]. The zero value guesses the format and takes lines as they come.
type Options struct {
	Format Format

	// Reorder is how far lines may be out of order to be put in order.
	Reorder time.Duration
}

// Broken is a line that cannot be read.
type Broken struct {
	Line int64  // from 1
	Why  string // what is wrong with it
	Text string // its beginning, as it came
}

// Stats is what a reader has found so far.
type Stats struct {
	Name   string
	Format Format
	Has    Fields // by the first lines

	// Sampled is how many of the first lines are requests. Without one, Has says nothing.
	Sampled int

	Lines, Requests int64
	Broken          int64
	Shown           []Broken // the first three

	NoAddress  int64 // requests without the address of the caller
	Late       int64 // requests further out of order than Options.Reorder
	MixedZones bool
}

// Reader reads the log of one file.
type Reader struct {
	in      *bufio.Reader
	reorder int64
	clock   clock
	stats   Stats

	held   []*Entry // in order, from head on
	head   int
	bytes  int // of the memory of the lines held
	free   []*Entry
	given  *Entry // by the last Next
	doubt  doubt  // of the last line, if its time is far after those before it
	latest int64  // of all entries read, 0 before the first
	before int64  // of the entry that was given last
	err    error  // of the file
}

// doubt is an entry whose time the next line has to confirm. Without an entry it is none.
type doubt struct {
	entry *Entry
	line  int64
	text  []byte // its beginning, as it came
}

// New returns a reader of a log, which may be compressed by gzip. It reads the first lines, to
// find the format and what the log has.
func New(name string, r io.Reader, o Options) (*Reader, error) {
	in := bufio.NewReaderSize(r, sampleSize)
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		in = bufio.NewReaderSize(z, sampleSize)
	}

	// A last line that the sample cuts off says nothing.
	sample, err := in.Peek(sampleSize)
	if err != nil && !errors.Is(err, io.EOF) && len(sample) == 0 {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	if i := bytes.LastIndexByte(sample, '\n'); i >= 0 && err == nil {
		sample = sample[:i]
	}

	// The sample also says what the lines have.
	f := o.Format
	if f == Guess {
		f = guess(sample)
	}

	r2 := &Reader{in: in, reorder: o.Reorder.Microseconds(), stats: Stats{Name: name, Format: f}}
	for line := range bytes.Lines(sample) {
		e := Entry{line: bytes.Clone(bytes.TrimRight(line, "\r\n"))}
		if f.parse(&e, new(clock)) == "" {
			r2.stats.Has |= e.fields()
			r2.stats.Sampled++
		}
	}

	return r2, nil
}

// Stats returns what the reader has found so far.
func (r *Reader) Stats() Stats {
	s := r.stats
	s.MixedZones = r.clock.Mixed
	return s
}

// Next returns the next entry, or an error: io.EOF at the end, and otherwise that of the file,
// after all entries before it.
func (r *Reader) Next() (*Entry, error) {
	r.recycle()
	for r.err == nil && !r.due() {
		r.read()
	}
	if r.err != nil {
		r.endDoubt(r.latest == 0) // a log of one line has none around it
	}
	if r.head == len(r.held) {
		return nil, r.err
	}

	// The memory of the row is used again once half of it has been given.
	e := r.held[r.head]
	r.held[r.head] = nil
	if r.head++; r.head > 64 && r.head > len(r.held)/2 {
		r.held = r.held[:copy(r.held, r.held[r.head:])]
		r.head = 0
	}
	r.bytes -= cap(e.line)
	r.before, r.given = e.At, e
	return e, nil
}

// recycle keeps the memory of the entry that was given last.
func (r *Reader) recycle() {
	if r.given != nil {
		r.keep(r.given)
	}
	r.given = nil
}

// keep keeps the memory of an entry for another line, unless it is that of a long one.
func (r *Reader) keep(e *Entry) {
	if cap(e.line) <= keptLine {
		r.free = append(r.free, e)
	}
}

// due reports whether no line that is to come belongs before the first entry held.
func (r *Reader) due() bool {
	n := len(r.held) - r.head
	return n > 0 && (r.latest-r.held[r.head].At >= r.reorder || n >= maxHeld || r.bytes > maxHeldBytes)
}

// read reads one line, and holds its entry.
func (r *Reader) read() {
	line, err := r.in.ReadSlice('\n')
	if err != nil && len(line) == 0 {
		r.err = err
		return
	}
	r.stats.Lines++
	if errors.Is(err, bufio.ErrBufferFull) {
		r.broken(r.stats.Lines, line, tooLong)
		r.skipLine()
		return
	}

	// The last line may have no end.
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) == 0 {
		return
	}

	e := r.entry()
	e.line = append(e.line, line...)
	if wrong := r.stats.Format.parse(e, &r.clock); wrong != "" {
		r.broken(r.stats.Lines, line, wrong)
		r.keep(e)
		return
	}

	// No line moves the clock far alone: the next confirms its time, or goes on before it.
	r.endDoubt(e.At >= r.doubtedAt()-maxJump)
	if r.latest == 0 || e.At-r.latest > maxJump {
		r.doubt = doubt{e, r.stats.Lines, append(r.doubt.text[:0], line[:min(len(line), maxText)]...)}
		return
	}
	r.hold(e)
}

// doubtedAt returns the time that is in doubt.
func (r *Reader) doubtedAt() int64 {
	if r.doubt.entry == nil {
		return 0
	}
	return r.doubt.entry.At
}

// endDoubt holds the entry in doubt, if there is one and it is confirmed. Otherwise its line is
// broken.
func (r *Reader) endDoubt(confirmed bool) {
	e := r.doubt.entry
	switch {
	case e == nil:
	case confirmed:
		r.hold(e)
	default:
		r.broken(r.doubt.line, r.doubt.text, strayTime)
		r.keep(e)
	}
	r.doubt.entry = nil
}

// entry returns an empty entry.
func (r *Reader) entry() *Entry {
	n := len(r.free) - 1
	if n < 0 {
		return &Entry{line: make([]byte, 0, 512)}
	}
	e := r.free[n]
	r.free = r.free[:n]
	e.reset()
	return e
}

// skipLine passes the rest of a line that is too long.
func (r *Reader) skipLine() {
	for {
		_, err := r.in.ReadSlice('\n')
		if err == nil {
			return
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			r.err = err
			return
		}
	}
}

// broken counts a line that cannot be read, and keeps the first ones.
func (r *Reader) broken(n int64, line []byte, why string) {
	r.stats.Broken++
	if len(r.stats.Shown) < maxShown {
		text := string(line[:min(len(line), maxText)])
		r.stats.Shown = append(r.stats.Shown, Broken{n, why, text})
	}
}

// hold counts an entry, and puts it in its place among those held.
func (r *Reader) hold(e *Entry) {
	r.stats.Requests++
	if e.Address == "" {
		r.stats.NoAddress++
	}

	// It cannot be put before what was given already.
	if e.At < r.before {
		r.stats.Late++
		e.At = r.before
	}

	r.latest = max(r.latest, e.At)
	r.bytes += cap(e.line)

	// Nearly all lines come in order. Of two of one time the first stays the first.
	r.held = append(r.held, e)
	i := len(r.held) - 1
	if i == r.head || r.held[i-1].At <= e.At {
		return
	}

	// The place is behind all that are not later.
	low, high := r.head, i
	for low < high {
		if mid := (low + high) / 2; r.held[mid].At <= e.At {
			low = mid + 1
		} else {
			high = mid
		}
	}
	copy(r.held[low+1:], r.held[low:i])
	r.held[low] = e
}

// Merge returns the entries of several readers in the order of their times.
func Merge(readers []*Reader) *Merged {
	return &Merged{readers: readers, next: make([]*Entry, len(readers)), last: -1}
}

// Merged is several readers in one.
type Merged struct {
	readers []*Reader
	next    []*Entry // of each; nil before the first, and at its end
	last    int      // the reader of the entry that was given last; -1 before the first
	Errors  []error  // of files that could not be read to their end
}

// Next returns the next entry, or io.EOF. A file that cannot be read to its end is among Errors,
// and the others are read on.
func (m *Merged) Next() (*Entry, error) {
	if m.last < 0 {
		for i := range m.readers {
			m.advance(i)
		}
	} else {
		m.advance(m.last)
	}

	// Of equal times the first file comes first.
	m.last = 0
	var first *Entry
	for i, e := range m.next {
		if e != nil && (first == nil || e.At < first.At) {
			first, m.last = e, i
		}
	}
	if first == nil {
		return nil, io.EOF
	}

	return first, nil
}

// advance reads the next entry of a reader.
func (m *Merged) advance(i int) {
	if m.last >= 0 && m.next[i] == nil {
		return
	}
	e, err := m.readers[i].Next()
	if err != nil && !errors.Is(err, io.EOF) {
		s := &m.readers[i].stats
		m.Errors = append(m.Errors, fmt.Errorf("%s: line %d: %w", s.Name, s.Lines, err))
	}
	m.next[i] = e
}
