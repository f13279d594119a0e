package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// at is 2026-11-28 07:37:17 in UTC.
var at = time.Date(2026, 11, 28, 7, 37, 17, 0, time.UTC).UnixMicro()

// flat is an entry without its memory.
func flat(e *Entry) Entry {
	f := *e
	f.line = nil
	return f
}

func TestLinesOfAllFormats(t *testing.T) {
	// Each line has all that its format may say.
	for _, row := range []struct {
		name, line string
		format     Format
		want       Entry
	}{
		{"nginx", `192.0.2.7 - ada [28/Nov/2026:08:37:17 +0100] "GET /a?b=1 HTTP/1.1" 200 612 "http://x/" "curl/8.5"`, Combined,
			Entry{At: at, Address: "192.0.2.7", User: "ada", Method: "GET", Target: "/a?b=1", Status: 200,
				Referer: "http://x/", Agent: "curl/8.5"}},
		// The last text is X-Forwarded-For.
		{"nginx's main", `2001:db8::1 - - [28/Nov/2026:07:37:17 +0000] "POST / HTTP/2.0" 499 0 "-" "-" "192.0.2.1, 10.0.0.1"`, Combined,
			Entry{At: at, Address: "2001:db8::1", Method: "POST", Target: "/", Status: 499,
				Forwarded: "192.0.2.1, 10.0.0.1"}},
		{"common", `h - a [b] c [28/Nov/2026:07:37:17 +0000] "GET /x y HTTP/1.0" 404 -`, Combined,
			Entry{At: at, Address: "h", User: "a [b] c", Method: "GET", Target: "/x y", Status: 404}},
		{"escapes", `- - - [28/Nov/2026:07:37:17 +0000] "GET /\x22\xC3\xA4 HTTP/1.0" 404 - "-" "a\"b\\c"`, Combined,
			Entry{At: at, Method: "GET", Target: `/"ä`, Status: 404, Agent: `a"b\c`}},
		{"an absolute target", `192.0.2.7 - - [28/Nov/2026:07:37:17 +0000] "GET http://Shop.example:80 HTTP/1.1" 200 1`, Combined,
			Entry{At: at, Address: "192.0.2.7", Method: "GET", Target: "/", Host: "Shop.example:80", Status: 200}},

		// Of several times and addresses the best counts.
		{"nginx in JSON", `{"time_iso8601":"2026-11-28T08:37:17+01:00", "remote_addr":"192.0.2.7","request":"GET \/a HTTP/1.1",` +
			`"status":"200","http_host":"shop.example","http_user_agent":"\u00e4\ud83d\ude00\"","remote_user":"","x":[{"y":"}"}],"msec":"1795851437.250"}`,
			JSON, Entry{At: 1795851437250000, Address: "192.0.2.7", Method: "GET", Target: "/a", Host: "shop.example",
				Status: 200, Agent: "ä😀\""}},
		{"Caddy", `{"level":"info","ts":1795851437.1234567,"logger":"http.log.access","msg":"handled request","request":` +
			`{"remote_ip":"10.0.0.1","remote_port":"1","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"shop.example",` +
			`"uri":"/a?b","headers":{"User-Agent":["curl/8.5"],"Accept":["*/*","x"]},"tls":{"resumed":false}},"user_id":"ada","duration":0.01,"status":200}`,
			JSON, Entry{At: 1795851437113456, Began: true, Address: "192.0.2.7", User: "ada", Method: "GET",
				Target: "/a?b", Host: "shop.example", Status: 200, Agent: "curl/8.5"}},
		{"Traefik", `{"ClientAddr":"192.0.2.7:4711","ClientHost":"192.0.2.7","ClientUsername":"-","DownstreamStatus":404,"OriginStatus":0,` +
			`"RequestAddr":"shop.example:80","RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/a","StartUTC":"2026-11-28T07:37:17.25Z",` +
			`"request_User-Agent":"curl/8.5","time":"2026-11-28T07:37:18Z"}`,
			JSON, Entry{At: at + 250000, Began: true, Address: "192.0.2.7", Method: "GET", Target: "/a",
				Host: "shop.example", Status: 404, Agent: "curl/8.5"}},
		{"Envoy", `[2026-11-28T07:37:17.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 "192.0.2.7, 10.0.35.28" "nsq2http" "cc21-d2" "locations" "tcp://10.0.2.1:80"`,
			Envoy, Entry{At: at + 310000, Began: true, Address: "10.0.35.28", Forwarded: "192.0.2.7", Method: "POST",
				Target: "/v1", Host: "locations", Status: 204, Agent: "nsq2http"}},
		{"ALB", `https 2026-11-28T07:37:17.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 ` +
			`"GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws "Root=1" "www.example.com"`,
			ALB, Entry{At: at + 186641, Address: "192.0.2.7:2817", Method: "GET", Target: "/a?b",
				Host: "www.example.com:443", Status: 200, Agent: "curl/7.46.0"}},
	} {

		// What comes before it does not matter.
		if got := guess([]byte("\nnonsense\n" + row.line + "\n")); got != row.format {
			t.Errorf("%s: the format is guessed as %s", row.name, got)
		}

		e := Entry{line: []byte(row.line)}
		if wrong := row.format.parse(&e, new(clock)); wrong != "" || fmt.Sprint(flat(&e)) != fmt.Sprint(row.want) {
			t.Errorf("%s: %s\n%+v, want\n%+v", row.name, wrong, flat(&e), row.want)
		}
	}
}

// A copy keeps its texts when the memory of the entry is used for another line.
func TestCopiesKeepTheirTexts(t *testing.T) {
	const line = `192.0.2.7 - ada [28/Nov/2026:08:37:17 +0100] "GET http://shop.example HTTP/1.1" 200 1 "x" "curl" "10.0.0.1"`
	e := Entry{line: []byte(line)}
	if wrong := parseCombined(&e, new(clock)); wrong != "" {
		t.Fatal(wrong)
	}
	want := fmt.Sprint(flat(&e))

	var text []byte
	first := e.CopyTo(&text)
	var all []Entry
	for range 100 { // more than fits the memory that the text has
		all = append(all, e.CopyTo(&text))
	}
	copied := all[99].CopyTo(&text)

	clear(e.line)
	for _, c := range append(all, first, copied) {
		if got := fmt.Sprint(flat(&c)); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}

	// Texts that are not of a line are those that they were.
	other := Entry{Address: "192.0.2.1", Target: "/"}
	if c := other.CopyTo(&text); c.Address != "192.0.2.1" || c.Target != "/" {
		t.Errorf("%+v", c)
	}
}

// A line that is written when its request ends counts at the beginning, if it says how long that
// took.
func TestRequestsCountAtTheirBeginning(t *testing.T) {
	const request = `"request":"GET / HTTP/1.1"`
	alb := func(begun string) string {
		return `https 2026-11-28T07:37:17.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 ` +
			`"GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn:aws "Root=1" "x" "session"` + begun
	}
	for _, row := range []struct {
		line   string
		format Format
		want   int64
		began  bool
	}{
		{`{"msec":"1795851437.250",` + request + `,"request_time":"0.040"}`, JSON, at + 210_000, true},
		{`{"request_time":1.5,"msec":1795851437.000,` + request + `}`, JSON, at - 1_500_000, true},
		{`{"msec":1795851437.000,` + request + `,"request_time":"0.000"}`, JSON, at, true},

		// Half a second before a whole one may be that second or the one before.
		{`{"time_iso8601":"2026-11-28T07:37:17Z",` + request + `,"request_time":"0.500"}`, JSON, at, true},
		{`{"time_iso8601":"2026-11-28T07:37:17Z",` + request + `,"request_time":"2.500"}`, JSON, at - 2_000_000, true},

		// What is no duration in seconds changes nothing.
		{`{"msec":"1795851437.250",` + request + `,"request_time":"-"}`, JSON, at + 250_000, false},
		{`{"msec":"1795851437.250",` + request + `,"request_time":"0.1ms"}`, JSON, at + 250_000, false},
		{`{"msec":"1795851437.250",` + request + `,"request_time":"604800"}`, JSON, at + 250_000, false},
		{`{"msec":"1795851437.250",` + request + `,"duration":"0.040"}`, JSON, at + 250_000, false},
		{`{"StartUTC":"2026-11-28T07:37:17Z","msec":1795851437.25,` + request + `,"request_time":1}`, JSON, at, true},
		{`{"ts":1795851437.25,"request":{"method":"GET","uri":"/"},"duration":0.04}`, JSON, at + 210_000, true},

		{alb(` 0 2026-11-28T07:37:17.100000Z "forward" "-"`), ALB, at + 100_000, true},
		{alb(` 0 2026-11-28T07:37:18.100000Z "forward" "-"`), ALB, at + 186_641, false},
		{alb(``), ALB, at + 186_641, false},
	} {
		e := Entry{line: []byte(row.line)}
		if wrong := row.format.parse(&e, new(clock)); wrong != "" || e.At != row.want || e.Began != row.began {
			t.Errorf("%s: %s %d %t, want %d %t", row.line, wrong, e.At-at, e.Began, row.want-at, row.began)
		}
	}
}

func TestTimes(t *testing.T) {
	var c clock
	for text, want := range map[string]int64{
		"28/Nov/2026:07:37:17 +0000": at, "28/Nov/2026:03:07:17 -0430": at, "01/Mar/1970:00:00:00 +0000": 59 * 86400e6,
		"31/Feb/2026:07:37:17 +0000": 0, "28/ovD/2026:07:37:17 +0000": 0, "28/Nov/2026:24:37:17 +0000": 0,
		"2026-11-28T07:37:17Z": at, "2026-11-28 07:37:17,123": at + 123000, "2026/11/28 08:37:17.5 +0100": at + 500000,
		"2026-11-28T07:37:17.1234567890+00:00": at + 123456, "2026-13-28T07:37:17Z": 0, "2026-11-28T07:37:17 x": 0,
		"1795851437": at, "1795851437.000001": at + 1, "1795851437123": at + 123000, "1795851437123456": at + 123456,
		"1795851437123456789": 0, "1e9": 0, "-5": 0, "": 0,
	} {
		for range 2 { // the second time it is remembered
			got, ok := (&lineFields{clock: &c}).time([]byte(text))
			if got != want && ok || ok != (want != 0) {
				t.Errorf("%q is %d, %t, want %d", text, got, ok, want)
			}
		}
	}
	if !c.Mixed {
		t.Error("the zones are not mixed")
	}
}

// combined returns a line at the second.
func combined(second int, address string) string {
	when := time.UnixMicro(at).UTC().Add(time.Duration(second) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
	return address + " - - [" + when + `] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"
}

// all reads a log to its end, and returns the seconds and addresses of its entries.
func all(t *testing.T, r interface{ Next() (*Entry, error) }) (list []string) {
	t.Helper()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint((e.At-at)/1e6, e.Address))
	}
}

func open(t testing.TB, text string, o Options) *Reader {
	t.Helper()
	r, err := New("log", strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLinesAreSortedWithinTheBound(t *testing.T) {
	text := combined(10, "a") + combined(12, "b") + combined(8, "c") + combined(12, "d") + combined(20, "e") +
		combined(14, "f") + combined(20, "g")
	r := open(t, text, Options{Reorder: 5 * time.Second})

	// f is six seconds late and yet in time, as nothing later was given.
	want := []string{"8c", "10a", "12b", "12d", "14f", "20e", "20g"}
	if got := all(t, r); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	if s := r.Stats(); s.Late != 0 || s.Requests != 7 {
		t.Errorf("%+v", s)
	}

	text = combined(10, "a") + combined(20, "b") + combined(16, "c") + combined(30, "d") + combined(12, "e")
	r = open(t, text, Options{Reorder: 5 * time.Second})
	if got, want := all(t, r), []string{"10a", "16c", "20b", "20e", "30d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// e comes at the time of the entry that was given before it.
	if s := r.Stats(); s.Late != 1 {
		t.Errorf("%d are late, want 1", s.Late)
	}
}

// Any order of lines comes out as sort would put it, if all are within the bound.
func TestSortingIsStable(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var text strings.Builder
		var want []string
		type pair struct {
			second int
			name   string
		}
		var list []pair
		for i := range 300 {
			second := i/3 + rnd.IntN(8)
			list = append(list, pair{second, fmt.Sprint("a", i)})
			text.WriteString(combined(second, fmt.Sprint("a", i)))
		}

		// The standard library says what the order is.
		slices.SortStableFunc(list, func(a, b pair) int { return a.second - b.second })
		for _, p := range list {
			want = append(want, fmt.Sprint(p.second, p.name))
		}

		if got := all(t, open(t, text.String(), Options{Reorder: 10 * time.Second})); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestMergeIsByTime(t *testing.T) {
	// One of them is empty.
	m := Merge([]*Reader{
		open(t, combined(1, "a")+combined(5, "b"), Options{}), open(t, "", Options{}),
		open(t, combined(0, "c")+combined(1, "d")+combined(9, "e"), Options{}),
	})
	if got, want := all(t, m), []string{"0c", "1a", "1d", "5b", "9e"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBrokenLinesAreCounted(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	text := combined(0, "a") + "\x00\xff\x1b[2J garbage\n" + long + "\n" +
		strings.Replace(combined(1, "b"), "GET / HTTP/1.1", "-", 1) +
		strings.Replace(combined(1, "b"), " 200 ", " OK ", 1) + "\r\n\n" + strings.TrimSuffix(combined(2, "-"), "\n")
	r := open(t, text, Options{})
	if got, want := all(t, r), []string{"0a", "2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// The first three are shown as they came, and their ends are cut.
	s := r.Stats()
	if s.Broken != 4 || s.Requests != 2 || s.NoAddress != 1 || len(s.Shown) != 3 {
		t.Fatalf("%+v", s)
	}

	want := []Broken{{2, noTime, "\x00\xff\x1b[2J garbage"}, {3, tooLong, long[:maxText]}, {4, noRequest, ""}}
	for i, want := range want {
		if got := s.Shown[i]; got.Line != want.Line || got.Why != want.Why || want.Text != "" && got.Text != want.Text {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestCompressedLogs(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 1000 {
		z.Write([]byte(combined(i, "a")))
	}
	z.Close()

	r, err := New("log.gz", bytes.NewReader(b.Bytes()), Options{})
	if err != nil {
		t.Fatal(err)
	}

	if got := all(t, r); len(got) != 1000 || r.Stats().Has != HasAddress {
		t.Errorf("%d entries, and it has %b", len(got), r.Stats().Has)
	}

	// What is cut off is told, after all that is whole.
	cut, err := New("log.gz", bytes.NewReader(b.Bytes()[:b.Len()-100]), Options{})
	if err != nil {
		t.Fatal(err)
	}

	m := Merge([]*Reader{cut})
	if got := all(t, m); len(got) == 0 || len(m.Errors) != 1 || !errors.Is(m.Errors[0], io.ErrUnexpectedEOF) {
		t.Errorf("%d entries, and %v", len(got), m.Errors)
	}

	if _, err := New("log.gz", strings.NewReader("\x1f\x8bxx"), Options{}); err == nil {
		t.Error("what is no gzip is read")
	}
}

// A line of every format costs no memory of its own.
func TestReadingAllocatesNothing(t *testing.T) {
	// The first lines fill the memory of entries.
	text := strings.Repeat(combined(0, "192.0.2.7")+combined(1, "192.0.2.8"), 5000)
	r := open(t, text, Options{})
	for range 100 {
		r.Next()
	}
	if n := testing.AllocsPerRun(1000, func() { r.Next() }); n != 0 {
		t.Errorf("%v allocations for a line", n)
	}
}

// However the lines of any format look, they are read or refused, and all texts lie in the line.
func fuzz(f *testing.F, format Format, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\n") || len(text) > maxLine {
			return
		}
		e := Entry{line: []byte(text)}
		if format.parse(&e, new(clock)) != "" {
			return
		}
		if e.At <= 0 || e.Method == "" || e.Target == "" {
			t.Errorf("%+v", e)
		}

		// Escapes only make texts shorter.
		for _, s := range []string{e.Address, e.Forwarded, e.User, e.Method, e.Target, e.Host, e.Agent, e.Referer} {
			if len(s) > len(text) {
				t.Errorf("%q is longer than the line", s)
			}
		}
	})
}

func FuzzCombined(f *testing.F) {
	fuzz(f, Combined, strings.TrimSpace(combined(0, "192.0.2.7")),
		`- - - [28/Nov/2026:07:37:17 +0000] "GET /\x22 H" 404 -`)
}

func FuzzJSON(f *testing.F) {
	fuzz(f, JSON, `{"ts":1795851437.1,"request":{"client_ip":"::1","method":"GET","uri":"/",`+
		`"headers":{"User-Agent":["\ud83d\ude00"]}}}`,
		`{"time":"2026-11-28T07:37:17Z","request":"GET / HTTP/1.1","x":[1,{"a":null}]}`)
}

func FuzzEnvoy(f *testing.F) {
	fuzz(f, Envoy, `[2026-11-28T07:37:17.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 "a, b" "c" "d" "e" "f"`)
}

func FuzzALB(f *testing.F) {
	fuzz(f, ALB, `h2 2026-11-28T07:37:17.186641Z a 192.0.2.7:2817 b 0 0 0 200 200 0 57 "GET https://c:443/a HTTP/1.1" "d" e`)
}

// Whole logs of any bytes are read to their end, and every line is counted once.
func FuzzReader(f *testing.F) {
	f.Add([]byte(combined(0, "a")+"x\n"+combined(-3, "b")), byte(0))
	f.Fuzz(func(t *testing.T, text []byte, format byte) {
		o := Options{Format: Format(format % 5), Reorder: 5 * time.Second}
		r, err := New("log", bytes.NewReader(text), o)
		if err != nil {
			return
		}

		// Every entry is counted, and none comes before another.
		n, before := int64(0), int64(0)
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			if n++; e.At < before {
				t.Error("the time goes back")
			}
			before = e.At
		}
		if s := r.Stats(); s.Requests != n || s.Broken+s.Requests > s.Lines || s.Lines > int64(len(text)) {
			t.Errorf("%d entries, %+v", n, s)
		}
	})
}

// again reads a text as often as n says.
type again struct {
	text []byte
	n, i int
}

func (a *again) Read(b []byte) (int, error) {
	if a.i == len(a.text) {
		a.i, a.n = 0, a.n-1
	}
	if a.n <= 0 {
		return 0, io.EOF
	}

	n := copy(b, a.text[a.i:])
	a.i += n
	return n, nil
}

// memory returns the bytes of all lines that the reader has.
func (r *Reader) memory() (n int) {
	for _, e := range append(slices.Clone(r.held[r.head:]), r.free...) {
		n += cap(e.line)
	}
	return n
}

// Long lines between short ones of one second lend these no memory.
func TestHeldLinesAreBounded(t *testing.T) {
	broken := strings.Repeat("x", 60<<10) + "\n"
	long := strings.Replace(combined(0, "b"), "GET /", "GET /"+strings.Repeat("x", 3000), 1)
	for name, text := range map[string]string{"broken": broken + combined(0, "a"), "long": long + combined(0, "a")} {

		// A second holds so many pairs of lines.
		n := 3000
		if name == "long" {
			n = 30_000
		}

		r, err := New("log", &again{text: []byte(text), n: n}, Options{Reorder: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}

		// All are held until their bound is reached, or the log ends.
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if got, want := r.memory(), maxHeldBytes+maxLine; got > want || r.bytes > want {
			t.Errorf("%s: %d bytes are held, want at most %d", name, got, want)
		}

		// Beside broken lines there is room for all.
		if got := len(r.held) - r.head; name == "broken" && got != n-1 {
			t.Errorf("%d lines are held beside broken ones, want %d", got, n-1)
		}

		held := 0
		for _, e := range r.held[r.head:] {
			held += cap(e.line)
		}
		if r.bytes != held {
			t.Errorf("%s: %d bytes are counted, want %d", name, r.bytes, held)
		}
	}
}

// Who chooses the name of a user chooses no time.
func TestNamesOfUsersAreNoTimes(t *testing.T) {
	const name = "[28/Nov/2199:00:00:00 +0000]"
	for _, user := range []string{name, "a " + name + " b", name + ` \"GET / HTTP/1.1\" 200`, name + ` \x22GET`} {
		r := open(t, strings.Replace(combined(1, "a"), "- - [", "- "+user+" [", 1), Options{})
		e, err := r.Next()

		if err != nil || e.At != at+1e6 || e.User != user || e.Target != "/" {
			t.Errorf("%s: %v, %+v", user, err, e)
		}
	}
}

// A line alone cannot move the clock, wherever it stands.
func TestOneLineCannotMoveTheClock(t *testing.T) {
	const day = 24 * 3600
	far := combined(8*day, "x")
	for _, row := range []struct {
		name, text string
		want       []string
		broken     int64 // the number of the line, 0 for none
	}{
		// The line is the first, the last, or one between them.
		{"first", far + combined(0, "a") + combined(1, "b"), []string{"0a", "1b"}, 1},
		{"between", combined(0, "a") + far + combined(1, "b"), []string{"0a", "1b"}, 2},
		{"last", combined(0, "a") + combined(1, "b") + far, []string{"0a", "1b"}, 3},
		{"within the bound", combined(0, "a") + combined(7*day, "b") + combined(1, "c"), []string{"0a", "604800b", "604800c"}, 0},
		{"a pause", combined(0, "a") + far + "x\n" + combined(8*day+1, "b"), []string{"0a", "691200x", "691201b"}, 0},
		{"alone", far, []string{"691200x"}, 0},
		{"two steps", combined(0, "a") + far + combined(800*day, "b") + combined(8*day+1, "c"),
			[]string{"0a", "691200x", "691201c"}, 3},
	} {
		r := open(t, row.text, Options{})
		if got := all(t, r); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}

		// The line is shown as it came, with why.
		s := r.Stats()
		i := slices.IndexFunc(s.Shown, func(b Broken) bool { return b.Why == strayTime })
		if s.Requests != int64(len(row.want)) || s.Requests+s.Broken != s.Lines || (i >= 0) != (row.broken > 0) {
			t.Errorf("%s: %+v", row.name, s)
		} else if i >= 0 && (s.Shown[i].Line != row.broken || !strings.HasSuffix(s.Shown[i].Text, `"-" "-"`)) {
			t.Errorf("%s: %+v", row.name, s.Shown[i])
		}
	}
}
