package caddymw_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// asCaddy in the environment makes the test binary, in which all standard modules are
// linked, a Caddy with headgate.
const asCaddy = "CADDYMW_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	test.Exit(m.Run())
}

// caddy is a process that serves a site by HTTP at addr, and by TLS and QUIC at secure. A
// port of freeport is held for QUIC at 127.0.0.1 by the test itself, so that is another
// address.
type caddy struct {
	t                   *testing.T
	addr, secure, admin string
	folder              string
	log                 test.Log
}

// command returns Caddy's command with the words, in a folder of its own.
func (c *caddy) command(words ...string) *exec.Cmd {
	c.t.Helper()
	program, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(program, words...)
	cmd.Dir = c.folder
	cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+c.folder, "XDG_DATA_HOME="+c.folder, "XDG_CONFIG_HOME="+
		c.folder)
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

// caddyfile adds the global options. ADDR, SECURE and the like in the text are replaced.
func (c *caddy) caddyfile(text string) string {
	_, port, _ := net.SplitHostPort(c.secure)
	return "{\n\tadmin " + c.admin + "\n\thttps_port " + port +
		"\n\tskip_install_trust\n\tlocal_certs\n\tauto_https disable_redirects\n" +
		"\tlog {\n\t\tlevel INFO\n\t}\n\tservers {\n\t\tSERVERS\n\t}\n}\n" +
		strings.NewReplacer("SECURE {", "https://"+c.secure+" {\n\tbind 127.0.0.2", "ADDR", "http://"+
			c.addr).Replace(text)
}

// site is a Caddyfile, and what is in its global block of servers.
type site struct{ text, servers string }

func (c *caddy) write(s site) string {
	c.t.Helper()
	path := filepath.Join(c.folder, "Caddyfile")
	text := strings.Replace(c.caddyfile(s.text), "SERVERS", s.servers, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// start runs a Caddy with the Caddyfile until the test ends.
func start(t *testing.T, s site, env ...string) *caddy {
	t.Helper()

	c := &caddy{t: t, addr: freeport.Addr(t), secure: strings.Replace(freeport.Addr(t), "127.0.0.1", "127.0.0.2", 1),
		admin: freeport.Addr(t), folder: t.TempDir()}
	c.run(env, "run", "--config", c.write(s), "--adapter", "caddyfile")

	// Certificates are made in the background, after Caddy has begun to serve.
	if strings.Contains(s.text, "SECURE") {
		until(t, "Caddy has made a certificate", func() bool {
			conn, err := tls.Dial("tcp", c.secure, &tls.Config{InsecureSkipVerify: true})
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	return c
}

func (c *caddy) run(env []string, words ...string) {
	t := c.t
	t.Helper()

	cmd := c.command(words...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = &c.log
	cmd.Stdout = &c.log

	ended, err := test.Launch(cmd)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the log of Caddy:\n%s", c.log.String())
		}
	})

	until(t, "Caddy serves", func() bool {
		select {
		case <-ended:
			t.Fatalf("Caddy has ended:\n%s", c.log.String())
		default:
		}
		return strings.Contains(c.log.String(), "serving initial configuration")
	})
}

// until waits until a condition holds, for at most half a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within half a minute", what)
		case <-tick.C:
		}
	}
}

// policies writes a file of policies of the application default and returns its path.
func policies(t *testing.T, list ...string) string {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("policies:\n")
	for _, text := range list {
		b.WriteString("- {apps: [default], " + text + "}\n")
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// client asks over connections that others do not use, and believes any certificate.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// answer is an answer without its body, which is read.
type answer struct {
	*http.Response
	body string
}

func ask(t *testing.T, c *http.Client, url string, header ...string) answer {
	t.Helper()

	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}

	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}

	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	body, err := io.ReadAll(a.Body)
	a.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return answer{a, string(body)}
}

// upstream is a service that counts the requests that reach it.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	hits int
}

func service(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.hits++
		u.mu.Unlock()
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hits
}
