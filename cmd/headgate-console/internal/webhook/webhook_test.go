package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func allowing(prefixes ...string) Options {
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	return Options{Networks: NewNetworks(list), Clock: func() time.Time { return noon }}
}

func TestAddressesOfTheInternetAreAllowed(t *testing.T) {
	for _, row := range []struct {
		ip string
		ok bool
	}{
		{"8.8.8.8", true}, {"1.1.1.1", true}, {"100.63.255.255", true}, {"100.128.0.0", true}, {"172.15.0.1", true},
		{"172.32.0.1", true},
		{"2606:4700::1111", true}, {"2a00:1450::1", true},
		// Loopback, private networks, the services of clouds, and each way to write one of them
		// in IPv6.
		{"127.0.0.1", false}, {"127.255.255.254", false}, {"0.0.0.0", false}, {"0.1.2.3", false}, {"10.1.2.3", false},
		{"172.16.0.1", false},
		{"172.31.255.255", false}, {"192.168.1.1", false}, {"169.254.169.254", false}, {"100.64.0.1", false},
		{"100.127.255.255", false},
		{"100.100.100.200", false}, {"168.63.129.16", false}, {"192.0.0.192", false}, {"198.18.0.1", false},
		{"224.0.0.1", false},
		{"239.255.255.250", false}, {"240.0.0.1", false}, {"255.255.255.255", false}, {"192.0.2.1", false},
		{"::", false}, {"::1", false}, {"::ffff:8.8.8.8", false}, {"::ffff:127.0.0.1", false}, {"::7f00:1", false},
		{"64:ff9b::7f00:1", false},
		{"64:ff9b::808:808", false}, {"2002:7f00:1::", false}, {"2001::1", false}, {"2001:db8::1", false},
		{"fc00::1", false}, {"fd00:ec2::254", false},
		{"fe80::1", false}, {"fe80::1%eth0", false}, {"fec0::1", false}, {"ff02::1", false}, {"100::1", false},
		{"2606:4700::1%eth0", false},
	} {
		if err := (*Networks)(nil).Check(netip.MustParseAddr(row.ip)); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.ip, err)
		}
	}

	// A mapped address is not the address that is permitted: it is refused as such.
	n := allowing("10.0.0.0/8", "::1/128").Networks
	for ip, ok := range map[string]bool{"10.1.2.3": true, "::1": true, "8.8.8.8": true, "127.0.0.1": false,
		"::ffff:10.1.2.3": false, "11.0.0.1": true, "::2": false} {
		if err := n.Check(netip.MustParseAddr(ip)); (err == nil) != ok {
			t.Errorf("with leave for some: %s: %v", ip, err)
		}
	}
}

func TestURLs(t *testing.T) {
	s := New(allowing("127.0.0.0/8"))
	for _, row := range []struct {
		url string
		ok  bool
	}{
		{"https://example.com/hook?x=1", true}, {"http://example.com:8080", true},
		{"https://[2606:4700::1]/", true}, {"http://127.0.0.1:1/", true},
		{"", false}, {"example.com", false}, {"ftp://example.com", false}, {"https://", false}, {"https:///x", false},
		{"https:example.com", false},
		{"javascript:alert(1)", false}, {"file:///etc/passwd", false}, {"https://user:pw@example.com", false},
		{"https://example.com/#x", false},
		{"https://example.com:0/", false}, {"https://example.com:65536/", false},
		{"https://example.com:x/", false}, {"https://[::1]/", false},
		{"https://10.0.0.1/", false}, {"https://[::ffff:127.0.0.1]/", false}, {"https://exa mple.com/", false},
		{"https://example.com/\n", false},
		{"https://example.com/" + strings.Repeat("x", MaxURL), false},
	} {
		if err := s.CheckURL(row.url); (err == nil) != row.ok {
			t.Errorf("%.60q: %v", row.url, err)
		}
	}
}

// The example of the specification of Standard Webhooks.
func TestSignatureIsOfStandardWebhooks(t *testing.T) {
	got, err := Sign([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "msg_p5jXN8AQM9LWM0D4loKWxJek",
		time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	if _, err := Sign([]string{"whsec_%"}, "x", noon, nil); err == nil {
		t.Error("a secret that is not of base64 is accepted")
	}
	if a, b := NewSecret(), NewSecret(); a == b || len(a) != len(secretPrefix)+44 {
		t.Errorf("the secrets are %s and %s", a, b)
	}
}

// receiver answers messages, and counts them.
func receiver(t *testing.T, answer http.HandlerFunc) (url string, count *atomic.Int64) {
	t.Helper()
	count = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/s3cret?t=s3cret", count
}

func TestSendSendsOnce(t *testing.T) {
	var got http.Header
	var body []byte
	url, count := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})

	m := Message{ID: "msg_1", URL: url, Secrets: []string{"whsec_AAAA", "whsec_BBBB"}, Body: []byte(`{"x":1}`)}
	status, err := New(allowing("127.0.0.0/8")).Send(t.Context(), m)
	if err != nil || status != 204 || count.Load() != 1 || string(body) != `{"x":1}` {
		t.Errorf("%d %v, %d messages, %s", status, err, count.Load(), body)
	}

	if New(Options{}).client.Transport.(*http.Transport).Proxy != nil { // it would resolve the name itself
		t.Error("a proxy may be used")
	}

	// Both secrets sign, so that a receiver can change from one to the other.
	want, _ := Sign(m.Secrets, m.ID, noon, m.Body)
	for name, value := range map[string]string{HeaderID: "msg_1", HeaderTimestamp: fmt.Sprint(noon.Unix()),
		HeaderSignature: want, "Content-Type": "application/json"} {
		if got.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.Get(name), value)
		}
	}

	if n := len(strings.Fields(want)); n != 2 {
		t.Errorf("%d signatures", n)
	}
}

// wantReason sends a message, and fails unless the error says want. No error has the path of the
// URL, which may be a secret.
func wantReason(t *testing.T, o Options, url string, status int, want string) {
	t.Helper()
	got, err := New(o).Send(t.Context(), Message{ID: "msg_1", URL: url, Secrets: []string{"whsec_AAAA"},
		Body: []byte("{}")})
	if err == nil || got != status || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") ||
		len(err.Error()) > 400 {
		t.Errorf("%d %v, want %d and %q", got, err, status, want)
	}
}

func TestSendReports(t *testing.T) {
	o := allowing("127.0.0.0/8")
	url, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "invalid\x1b[31m\n\n<b>payload\xff"+strings.Repeat("x", 1000))
	})

	wantReason(t, o, url, 500, "the answer was 500: invalid [31m <b>payload")
	wantReason(t, o, "http://127.0.0.1:1/s3cret", 0, "connection refused")
	wantReason(t, allowing(), url, 0, "127.0.0.1 is an internal address, which needs leave")

	// An answer may be long in its head as well as in its body.
	url, _ = receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeader))
	})
	wantReason(t, o, url, 0, "headers exceeded")

	url, _ = receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	wantReason(t, o, url, 404, "the answer was 404: nothing was said")
}

// A redirect is not followed, wherever it leads.
func TestSendFollowsNoRedirect(t *testing.T) {
	inner, count := receiver(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{301, 302, 303, 307, 308} {
		url, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner, status) })
		wantReason(t, allowing("127.0.0.0/8"), url, status, "a redirect, which is not followed")
	}
	if count.Load() != 0 {
		t.Errorf("%d redirects were followed", count.Load())
	}
}

// Of an answer without an end only 4 kB are read.
func TestSendReadsTheBeginningOfAnAnswer(t *testing.T) {
	written := make(chan int, 1)
	url, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for range 64 << 10 {
			m, err := w.Write(make([]byte, 1<<10))
			if n += m; err != nil {
				break
			}
		}
		written <- n
	})

	status, err := New(allowing("127.0.0.0/8")).Send(t.Context(), Message{ID: "x", URL: url,
		Secrets: []string{"whsec_AAAA"}})
	if err != nil || status != 200 {
		t.Errorf("%d %v", status, err)
	}
	if n := <-written; n == 64<<20 {
		t.Error("all 64 MB were taken")
	}
}

// The timeout bounds the header and the body together.
func TestSendGivesUp(t *testing.T) {
	end := make(chan struct{})
	defer close(end)

	o := allowing("127.0.0.0/8")
	o.Timeout = 200 * time.Millisecond
	url, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) { <-end })

	wantReason(t, o, url, 0, "it took longer than 200ms")

	hangs := func(status int) (url string) {
		url, _ = receiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			w.(http.Flusher).Flush()
			<-end
		})
		return url
	}
	wantReason(t, o, hangs(500), 500, "the answer 500 did not end: it took longer than 200ms")

	wantReason(t, o, hangs(302), 302, "a redirect, which is not followed")
	// The receiver has the message, so that another attempt would repeat it.
	message := Message{ID: "x", URL: hangs(200), Secrets: []string{"whsec_AAAA"}}
	if status, err := New(o).Send(t.Context(), message); status != 200 || err != nil {
		t.Errorf("%d %v", status, err)
	}
}

// names is a DNS server whose answer about every name is the next of a list.
func names(t *testing.T, answers ...string) *net.Resolver {
	t.Helper()

	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })

	next := 0
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) == 0 {
				continue
			}

			// The question comes back with its answer. Only the A record has one, so that each
			// Send takes one address.
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				a := netip.MustParseAddr(answers[min(next, len(answers)-1)]).As4()
				next++
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: a},
				}}
			}

			out, _ := m.Pack()
			c.WriteTo(out, from)
		}
	}()

	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// A name that resolves to an allowed address, and then to an internal one, does not reach that.
func TestSendChecksTheAddressThatANameHasNow(t *testing.T) {
	url, count := receiver(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	o := allowing("127.0.0.1/32")
	o.Resolver = names(t, "127.0.0.1", "127.0.0.2", "10.0.0.1", "169.254.169.254")

	s := New(o)
	m := Message{ID: "x", URL: "http://hook.example:" + port, Secrets: []string{"whsec_AAAA"}}
	if status, err := s.Send(t.Context(), m); err != nil || status != 200 {
		t.Fatalf("%d %v", status, err)
	}

	// The name is resolved anew for each message, and each time the address is checked.
	for _, ip := range []string{"127.0.0.2", "10.0.0.1", "169.254.169.254"} {
		if _, err := s.Send(t.Context(), m); err == nil ||
			!strings.Contains(err.Error(), ip+" is an internal address") {
			t.Errorf("%s: %v", ip, err)
		}
	}

	if count.Load() != 1 {
		t.Errorf("%d messages arrived", count.Load())
	}
}
