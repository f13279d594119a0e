package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/freeport"
)

// reloadable is a gateway with a file of settings.
type reloadable struct {
	*process
	t      *testing.T
	config string // the path
	url    string // of the proxy, or else of the other faces
}

// configured starts a gateway whose file has the text, which is followed only if it says so.
func configured(t *testing.T, text string, args ...string) *reloadable {
	t.Helper()
	r := &reloadable{t: t, config: filepath.Join(t.TempDir(), "gateway.yaml")}
	r.write(text)
	r.process = begin(t, "gateway", append([]string{"-listen", "127.0.0.1:0", "-config", r.config}, args...)...)
	face := "api"
	if strings.Contains(text, "upstream") {
		face = "proxy"
	}

	r.url = "http://" + r.address(t, face)
	return r
}

// write writes the file of settings, at once as an editor does.
func (r *reloadable) write(text string) {
	r.t.Helper()
	if !strings.Contains(text, "watch:") {
		text += "\nwatch: 0s\n"
	}

	put(r.t, r.config, text)
}

// put puts a file in place of the one that is there, at once.
func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// reloads returns how many lines say what became of a reload.
func (r *reloadable) reloads() int {
	return strings.Count(r.output(), "the configuration was re") // read or refused
}

// hangup sends the signal and returns the line about the reload.
func (r *reloadable) hangup() string {
	r.t.Helper()
	n := r.reloads()
	r.cmd.Process.Signal(syscall.SIGHUP)
	return r.line(n)
}

// line returns the line about the reload after the first n.
func (r *reloadable) line(n int) string {
	r.t.Helper()
	r.until(r.t, "the configuration is read anew", func() bool { return r.reloads() > n })
	for line := range strings.Lines(r.output()) {
		if strings.Contains(line, "the configuration was re") {
			if n--; n < 0 {
				return strings.TrimSpace(line)
			}
		}
	}

	return ""
}

// take writes the file, sends the signal, and wants the line to have a text.
func (r *reloadable) take(text, want string) {
	r.t.Helper()
	r.write(text)
	if line := r.hangup(); !strings.Contains(line, want) {
		r.t.Errorf("%s: it says\n%s, want %s", text, line, want)
	}
}

// says is a server that answers with its name.
func says(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.URL
}

// ask returns the answer to a request with headers, such as "X-A: b", and its body. The method may
// have a body of JSON behind it, as in "POST {}".
func ask(t *testing.T, client *http.Client, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	method, text, _ := strings.Cut(method, " ")
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if text != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}

	res, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}

	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(answer)
}

// The upstreams of 200 connections change again and again, and no request fails.
func TestReloadLosesNoRequest(t *testing.T) {
	const connections, changes = 200, 10
	a, b := says(t, "a"), says(t, "b")
	policies := file(t, "1000000000/1h")
	text := func(n int) string {
		list := fmt.Sprintf("upstreams:\n- {name: up, addresses: ['%s'], idle: %d}\n", []string{a, b}[n%2], 300+n)
		return list + fmt.Sprintf("policies: %s\nupstream-timeout: %ds\ntrusted-proxy: [10.0.0.%d]\n"+
			"access-log: %s\nrefusals: [{status: 503, body: '%d'}]\n", policies, 60+n, 1+n, os.DevNull, n)
	}

	r := configured(t, text(0))

	// Each client has one connection of its own.
	var requests, fromB atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range connections {
		client := &http.Client{Transport: &http.Transport{}}
		done.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				res, err := client.Post(r.url, "text/plain", strings.NewReader("body"))
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != 200 || err != nil || string(text) != "a" && string(text) != "b" {
					t.Errorf("%d %q %v", res.StatusCode, text, err)
				}
				requests.Add(1)
				if string(text) == "b" {
					fromB.Add(1)
				}
			}
		})
	}

	// Each change meets requests: as many as there are connections have ended since the last.
	for n := 1; n <= changes; n++ {
		r.take(text(n), `changed="upstream-timeout, upstreams, refusals, trusted-proxy"`)
		for since := requests.Load(); requests.Load() < since+connections && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}

	end()
	done.Wait()
	t.Logf("%d requests, %d of them to the second upstream, over %d connections and %d changes", requests.Load(),
		fromB.Load(), connections, changes)
	if fromB.Load() == 0 || fromB.Load() == requests.Load() {
		t.Errorf("%d of %d requests reached the second upstream", fromB.Load(), requests.Load())
	}

	if strings.Contains(r.output(), "level=ERROR") {
		t.Errorf("it has printed\n%s", r.output())
	}
}

// A configuration with mistakes changes nothing, and all of them are in one line.
func TestReloadOfAConfigurationWithMistakes(t *testing.T) {
	r := configured(t, "upstream: "+says(t, "a")+"\njson-secret: 0123456789abcdef0123456789abcdef-s3cret\n",
		"-admin-listen", "127.0.0.1:0")
	admin := "http://" + r.address(t, "admin")
	other := says(t, "b")
	wants := func(body string) {
		t.Helper()
		if _, got := ask(t, http.DefaultClient, "GET", r.url); got != body {
			t.Errorf("%q answers, want %q", got, body)
		}
	}

	state := func(ready, metric string) {
		t.Helper()
		if text := read(t, admin+"/readyz"); !strings.HasPrefix(text, "ok\n"+ready) {
			t.Errorf("/readyz: %q, want %q", text, ready)
		}
		line := "\nheadgate_gateway_config_last_reload_" + metric + "\n"
		if text := read(t, admin+"/metrics"); !strings.Contains(text, line) {
			t.Errorf("the metric is not %q:\n%s", metric, text)
		}
	}

	state("", "successful 1")

	r.take("upstream: "+other+"\nlog-level: loud\nmax-keys: many\njson-secret: s3cret\n",
		`level=ERROR msg="the configuration was refused, and the former stays in force" error="`)
	line := r.line(0)
	for _, want := range []string{"log-level: ", "max-keys: ", "json-secret: "} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is not in %s", want, line)
		}
	}

	wants("a")
	state("reload refused at 2", "successful 0")

	// A text that is no YAML is one mistake.
	r.take("upstream: [", "level=ERROR")
	wants("a")
	r.take("upstream: "+other+"\n", `msg="the configuration was read anew" changed="upstream, json-secret"`)
	wants("b")
	state("reload in force since 2", "successful 1")
	if line := r.hangup(); !strings.Contains(line, `msg="the configuration was read anew, and nothing has changed"`) {
		t.Error(line)
	}

	// What waits for a restart is named until then, and does not hold up the rest.
	restart := `level=WARN msg="the configuration was read anew; changed but in force after a restart: admin-listen, redis"`
	waits := "redis: redis://:s3cret@127.0.0.1:1\nadmin-listen: 127.0.0.1:1\nupstream: "
	r2 := configured(t, "upstream: "+other+"\n")
	r2.take(waits+other+"\nupstream-timeout: 9s\n", restart+` changed=upstream-timeout`)
	r2.take(waits+other+"\nupstream-timeout: 9s\n", restart)
	r2.take("", `in force after a restart: upstream, upstream-timeout"`)
	r2.take("upstream: "+other+"\nupstream-timeout: 9s\n", "nothing has changed")
	for _, p := range []*reloadable{r, r2} {
		if strings.Contains(p.output(), "s3cret") {
			t.Errorf("it tells a secret:\n%s", p.output())
		}
	}
}

// The signal ends no process: at its start, without a log, many times, and at its end.
func TestHangupsEndNoProcess(t *testing.T) {
	upstream, inside, end := slow(t)
	r := configured(t, "upstream: "+upstream+"\n")
	for range 50 {
		r.cmd.Process.Signal(syscall.SIGHUP)
	}

	r.until(t, "the configuration is read anew", func() bool { return r.reloads() > 0 })
	r.take("upstream: "+upstream+"\nlog-level: debug\n", "changed=log-level")
	if n := r.reloads(); n > 52 {
		t.Errorf("51 signals are %d reloads", n)
	}

	// A request holds up the shutdown, in which signals mean nothing.
	answer := make(chan int)
	go func() { answer <- get(t, r.url+"/slow") }()
	<-inside
	r.cmd.Process.Signal(syscall.SIGTERM)
	r.until(t, "it ends", func() bool { return strings.Contains(r.output(), "shutting down") })
	// Those that were counted before are all.
	n := r.reloads()
	for range 5 {
		r.cmd.Process.Signal(syscall.SIGHUP)
	}

	end <- true
	if status := <-answer; status != 200 {
		t.Errorf("the request is answered with %d", status)
	}

	if code := r.end(t); code != 0 || r.reloads() != n {
		t.Errorf("it ended with %d after %d reloads, want %d:\n%s", code, r.reloads(), n, r.output())
	}
}

// A gateway of variables alone has nothing to read but the files that they name.
func TestReloadOfAnEnvironment(t *testing.T) {
	page := filepath.Join(t.TempDir(), "slow.txt")
	put(t, page, "one")
	t.Setenv("HEADGATE_GATEWAY_REFUSALS", "[{file: "+page+"}]")
	t.Setenv("HEADGATE_GATEWAY_UPSTREAM", says(t, "a"))
	t.Setenv("HEADGATE_GATEWAY_WATCH", "100ms")
	p := begin(t, "gateway", "-listen", "127.0.0.1:0", "-policies", file(t, "1/1h"))
	r := &reloadable{process: p, t: t, url: "http://" + p.address(t, "proxy")}
	if line := r.hangup(); !strings.Contains(line, "nothing has changed") {
		t.Error(line)
	}

	ask(t, http.DefaultClient, "GET", r.url)
	if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "one" {
		t.Errorf("refused with %q", text)
	}

	// The file is followed, and the signal is for those who do not wait.
	put(t, page, "two")
	if line := r.line(1); !strings.Contains(line, "changed=refusals") {
		t.Error(line)
	}

	if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "two" {
		t.Errorf("refused with %q", text)
	}
}

// A file is followed without a signal. What cannot be read is tried again, and told once.
func TestFilesAreFollowed(t *testing.T) {
	a, b := says(t, "a"), says(t, "b")
	// The first change is half of a file.
	const watch = "\nwatch: 100ms\n"
	r := configured(t, "upstream: "+a+watch)
	r.write("upstream: [" + watch)
	if line := r.line(0); !strings.Contains(line, "level=ERROR") {
		t.Error(line)
	}

	// Each look tries it again, and says nothing new.
	time.Sleep(400 * time.Millisecond)
	if n := r.reloads(); n != 1 {
		t.Errorf("%d lines about one mistake:\n%s", n, r.output())
	}
	r.write("upstream: " + b + "\nwatch: 0s\n")
	if line := r.line(1); !strings.Contains(line, `changed="watch, upstream"`) {
		t.Error(line)
	}

	if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "b" {
		t.Errorf("%q answers", text)
	}

	// From here on a signal is needed.
	r.write("upstream: " + a + "\nwatch: 0s\n")
	time.Sleep(300 * time.Millisecond) // in which three looks would have seen it
	if n := r.reloads(); n != 2 {
		t.Errorf("%d reloads without a look:\n%s", n, r.output())
	}

	r.hangup()
	if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "a" {
		t.Errorf("%q answers", text)
	}
}

// What has not changed goes on: the log, and what is known of the addresses of an upstream.
func TestReloadKeepsWhatStays(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	list := "upstreams: [{name: a, addresses: ['http://" + freeport.Addr(t) + "', '" + says(t, "a") +
		"'], retry: {attempts: 2}, failures: 1, out: 1h, idle: %d}]\naccess-log: " + log + "\nupstream-timeout: %ds\n"
	r := configured(t, fmt.Sprintf(list, 1, 60))
	requests := func() {
		t.Helper()
		for range 4 {
			if res, text := ask(t, http.DefaultClient, "GET", r.url); res.StatusCode != 200 || text != "a" {
				t.Errorf("%d %q", res.StatusCode, text)
			}
		}
	}

	// The address is out from its first failure on, whatever else changes.
	requests()
	r.take(fmt.Sprintf(list, 1, 60)+"log-level: debug", "changed=log-level")
	requests()
	r.take(fmt.Sprintf(list, 2, 61), `changed="upstream-timeout, upstreams, log-level"`)
	requests()
	if n := strings.Count(r.output(), "gets no requests for a while"); n != 1 {
		t.Errorf("%d times the address was out:\n%s", n, r.output())
	}

	// All requests are in the one log.
	r.until(t, "the lines are written", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Count(string(text), "\n") == 12
	})
}

// pair is a certificate and its key in PEM.
type pair struct {
	cert, key string
	x509      *x509.Certificate
}

// issue returns a certificate that signs itself.
func issue(t *testing.T, name string, from, to time.Time) pair {
	t.Helper()
	// It is one of an authority too, so that a client can trust it.
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from,
		NotAfter: to, IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	text := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}

	return pair{text("CERTIFICATE", der), text("PRIVATE KEY", secret), parsed}
}

// valid returns one that is valid now.
func valid(t *testing.T, name string) pair {
	t.Helper()
	return issue(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// shown returns the certificate that an address shows in a new handshake, and the protocol.
func shown(t *testing.T, address string, own ...tls.Certificate) (name, protocol string, err error) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: own,
		NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		return "", "", err
	}

	defer conn.Close()

	// A server that refuses the client's certificate says so after the handshake of TLS 1.3. Others
	// begin with the settings of HTTP/2.
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return "", "", err
	}

	state := conn.ConnectionState()
	return state.PeerCertificates[0].Subject.CommonName, state.NegotiatedProtocol, nil
}

// volume is a folder of files as Kubernetes keeps it: a change is one rename of a link.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

func (v *volume) put(files map[string]string) {
	v.t.Helper()
	v.n++
	// The names in the folder lead through the link from the first time on.
	folder := fmt.Sprintf("..%d", v.n)
	errs := []error{os.Mkdir(filepath.Join(v.dir, folder), 0o700)}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(v.dir, folder, name), []byte(text), 0o600))
		if v.n == 1 {
			errs = append(errs, os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
		}
	}

	next := filepath.Join(v.dir, "..tmp")
	for _, err := range append(errs, os.Symlink(folder, next), os.Rename(next, filepath.Join(v.dir, "..data"))) {
		if err != nil {
			v.t.Fatal(err)
		}
	}
}

// New handshakes of all faces have the new certificate. A pair that is broken, of two halves, or
// out of its time takes the place of none.
func TestCertificatesAreReplaced(t *testing.T) {
	now := time.Now()
	first, second := valid(t, "first"), valid(t, "second")
	v := &volume{t: t, dir: t.TempDir()}
	v.put(map[string]string{"tls.crt": first.cert, "tls.key": first.key})
	r := configured(t, "watch: 100ms\nupstream: "+says(t, "a"), "-envoy-listen", "127.0.0.1:0", "-tls-cert",
		filepath.Join(v.dir, "tls.crt"), "-tls-key", filepath.Join(v.dir, "tls.key"))
	wants := func(name string) {
		t.Helper()
		for _, face := range []string{"proxy", "envoy"} {
			if got, protocol, err := shown(t, r.address(t, face)); got != name || protocol != "h2" || err != nil {
				t.Errorf("%s shows %q by %q, want %q: %v", face, got, protocol, name, err)
			}
		}
	}

	wants("first")

	// A connection with a request under way goes on.
	pool := x509.NewCertPool()
	pool.AddCert(first.x509)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	url := "https://" + r.address(t, "proxy")
	ask(t, client, "GET", url)

	for i, row := range []struct {
		files map[string]string
		want  string // in the line
		name  string
	}{
		{map[string]string{"tls.crt": second.cert, "tls.key": first.key}, "-tls-cert and -tls-key: tls: private key",
			"first"},
		{map[string]string{"tls.crt": second.cert, "tls.key": second.key}, `changed="tls-cert, tls-key"`, "second"},
		{map[string]string{"tls.crt": "junk", "tls.key": second.key}, "-tls-cert and -tls-key: tls: failed", "second"},
		{nil, "-tls-cert: open ", "second"},
	} {
		v.put(row.files)
		if line := r.line(i); !strings.Contains(line, row.want) {
			t.Errorf("%d: %s, want %s", i, line, row.want)
		}
		wants(row.name)
	}

	ask(t, client, "GET", url) // by the pool of the first

	// Out of its time, and then within it without any other change.
	soon := time.Now().Add(2 * time.Second).Truncate(time.Second)
	third := issue(t, "third", soon, now.Add(time.Hour))
	expired := issue(t, "expired", now.Add(-time.Hour), now.Add(-time.Minute))
	n := r.reloads()
	v.put(map[string]string{"tls.crt": expired.cert, "tls.key": expired.key})
	if line := r.line(n); !strings.Contains(line, "-tls-cert: the certificate has expired at") {
		t.Error(line)
	}

	v.put(map[string]string{"tls.crt": third.cert, "tls.key": third.key})
	r.until(t, "the certificate is valid", func() bool {
		name, _, _ := shown(t, r.address(t, "proxy"))
		return name == "third"
	})
}

// The certificates of clients are those of the authorities that are in force.
func TestAuthoritiesOfClientsAreReplaced(t *testing.T) {
	own, one, two := valid(t, "own"), valid(t, "one"), valid(t, "two")
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	put(t, path("cert"), own.cert)
	put(t, path("key"), own.key)
	put(t, path("ca"), one.cert)
	r := configured(t, "upstream: "+says(t, "a"), "-tls-cert", path("cert"), "-tls-key", path("key"), "-tls-client-ca",
		path("ca"))

	// The client resumes its session, which must not outlive the authority.
	pool := x509.NewCertPool()
	pool.AddCert(own.x509)
	certificate, err := tls.X509KeyPair([]byte(one.cert), []byte(one.key))
	if err != nil {
		t.Fatal(err)
	}

	sessions := tls.NewLRUClientSessionCache(8)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{certificate}, ClientSessionCache: sessions}}}
	url := "https://" + r.address(t, "proxy")
	for range 2 {
		ask(t, client, "GET", url)
	}

	put(t, path("ca"), two.cert)
	if line := r.hangup(); !strings.Contains(line, "changed=tls-client-ca") {
		t.Error(line)
	}

	if res, err := client.Get(url); err == nil {
		t.Errorf("a client of the former authority: %d", res.StatusCode)
	}

	other, err := tls.X509KeyPair([]byte(two.cert), []byte(two.key))
	if err != nil {
		t.Fatal(err)
	}

	if _, _, err := shown(t, r.address(t, "proxy"), other); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
}

// A file that is emptied, as on a full disk, takes away no setting until the signal says so.
func TestAnEmptiedFileChangesNothingWithoutTheSignal(t *testing.T) {
	r := configured(t, "watch: 100ms\njson-client: ['prices:"+strings.Repeat("ab", 32)+"']\n")
	take := func() int {
		res, _ := ask(t, http.DefaultClient, `POST {"key": "a"}`, r.url+"/v1/take")
		return res.StatusCode
	}

	if err := os.Truncate(r.config, 0); err != nil {
		t.Fatal(err)
	}
	if line := r.line(0); !strings.Contains(line, "is empty; if that is meant, send SIGHUP") || take() != 401 {
		t.Errorf("%d, it says %s", take(), line)
	}
	if line := r.hangup(); !strings.Contains(line, "json-client") || take() != 200 {
		t.Errorf("%d after the signal, it says %s", take(), line)
	}
}
