package routers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/nethttp"
)

// servletSpellings are ways to write paths that servers of servlets take for others.
var servletSpellings = []string{
	"/;a/login", "/login;", "/login;/", "/;/login", "/login;a=1;b=2", "/login%3Ba", "/login%3b",
	"/x/..;/login", "/x/;/../login", "/x/..;a=b/login", "/login/..;/login", "/.;/login", "//;a//login",
	"/files;a=b/a", "/files/a;b", "/files/;a", "/docs;a=b/a", "/docs/..;/login", "/;a=b", "/;/", "/about;/../login",
}

// servlets are the mappings of Tomcat by pattern.
var servlets = map[string]string{
	"/{$}": "", "/about": "/about", "/login": "/login", "/files/{name}": "/files/*", "/docs/": "/docs/*",
}

// Whatever Tomcat serves by a pattern counts under the policy of that. The requests pass a proxy
// with the limiter as they are, as they pass the gateway.
func TestPolicyCountsWhatTomcatServes(t *testing.T) {
	const home = "/usr/share/tomcat10"
	if os.Getenv("HEADGATE_TOMCAT") == "" {
		test.Skip(t, "it needs Tomcat; HEADGATE_TOMCAT=1 runs it with Debian's tomcat10")
	}
	upstream := startTomcat(t, home)
	l, c := pathspec.Counting(t)
	target, err := url.Parse("http://" + upstream)
	if err != nil {
		t.Fatal(err)
	}

	// The proxy must not clean what it passes on.
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(nethttp.New(l)(forward))
	defer proxy.Close()

	served := map[string]int{}
	usual := []string{"/", "/about", "/login", "/files/a", "/docs/a"}

	for _, spelling := range slices.Concat(usual, pathspec.Spellings, servletSpellings) {
		if spelling == "/files/a/.." {
			continue // the mapping of /files/{name} serves /files/ too
		}
		c.Counted = nil
		pattern := askTomcat(t, proxy.Listener.Addr().String(), spelling)
		served[pattern]++
		if pattern != "" && !slices.Contains(c.Counted, pattern) {
			t.Errorf("%s is served by %s and counted under %q", spelling, pattern, c.Counted)
		}
	}

	// A pattern that nothing was served by would be one that the test has not tried.
	for pattern := range servlets {
		if served[pattern] == 0 {
			t.Errorf("nothing was served by %s", pattern)
		}
	}
	t.Logf("served: %v", served)
}

// askTomcat sends a GET of the target as it is, and returns the pattern that served it.
func askTomcat(t *testing.T, addr, target string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	// A client of net/http would change the target before it is sent.
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n", target)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}

	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}

	if resp.StatusCode != 200 {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// startTomcat starts a Tomcat with a page for each pattern, which answers with that, and returns
// its address.
func startTomcat(t *testing.T, home string) string {
	t.Helper()
	addr := freeport.Addr(t)
	_, port, _ := strings.Cut(addr, ":")

	base := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("conf/server.xml", `<Server port="-1"><Service name="Catalina">`+
		`<Connector port="`+port+`" address="127.0.0.1" protocol="HTTP/1.1"/>`+
		`<Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine>`+
		`</Service></Server>`)

	// The default servlet and that of JSP are declared there.
	defaults, err := os.ReadFile("/etc/tomcat10/web.xml")
	if err != nil {
		t.Fatal(err)
	}
	write("conf/web.xml", string(defaults))

	// Each pattern is a servlet whose page is the pattern.
	var app strings.Builder
	app.WriteString(`<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0">`)
	for i, r := range pathspec.Routes {
		write(fmt.Sprintf("webapps/ROOT/WEB-INF/%d.jsp", i), r.Pattern)
		fmt.Fprintf(&app, "<servlet><servlet-name>s%d</servlet-name><jsp-file>/WEB-INF/%d.jsp</jsp-file></servlet>", i, i)
		fmt.Fprintf(&app, "<servlet-mapping><servlet-name>s%d</servlet-name><url-pattern>%s</url-pattern></servlet-mapping>",
			i, servlets[r.Pattern])
	}
	app.WriteString("</web-app>")
	write("webapps/ROOT/WEB-INF/web.xml", app.String())

	// Tomcat expects these folders below its base.
	for _, folder := range []string{"logs", "temp", "work"} {
		if err := os.Mkdir(filepath.Join(base, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	var out bytes.Buffer
	cmd := exec.Command(home+"/bin/catalina.sh", "run") // which execs Java
	cmd.Env = append(os.Environ(), "CATALINA_HOME="+home, "CATALINA_BASE="+base)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	// It takes some seconds until Tomcat has read its files.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if resp, err := http.Get("http://" + addr + "/about"); err == nil {
			resp.Body.Close()
			return addr
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("Tomcat does not answer:\n%s", out.String())
	return ""
}
