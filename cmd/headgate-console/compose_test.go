package main

import (
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
)

// composed is a compose.yaml, as far as it is checked. A field that it does not know is an error.
type composed struct {
	Name     string
	Services map[string]container
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
}

type container struct {
	Image       string
	Build       struct{ Context, Dockerfile, Target string }
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Networks    []string
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		StartPeriod       string `yaml:"start_period"`
	}
	Restart, User string
	Init          bool
	ReadOnly      bool `yaml:"read_only"`
	Tmpfs         []string
	CapDrop       []string `yaml:"cap_drop"`
	SecurityOpt   []string `yaml:"security_opt"`
}

const deployed = "deploy/compose.yaml"

// compose reads the file. Its variables have their defaults.
func compose(t *testing.T) composed {
	t.Helper()
	text, err := os.ReadFile(deployed)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAll(text, []byte("$1"))

	var c composed
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	pinned   = regexp.MustCompile(`^[a-z-]+:\d+\.\d+\.\d+$`)
	loopback = regexp.MustCompile(`^127\.0\.0\.1:(\d+):(\d+)$`)
)

// isClosed reports a port that is open to the network, as one without an address is.
func (c *container) isClosed(t *testing.T, name string) {
	t.Helper()
	for _, port := range c.Ports {
		if !loopback.MatchString(port) {
			t.Errorf("%s: the port %q is not one of 127.0.0.1", name, port)
		}
	}
}

// names reports volumes and networks of a service that are not in the file.
func (c *composed) names(t *testing.T, name string, s container) {
	t.Helper()
	for _, v := range s.Volumes {
		volume, _, _ := strings.Cut(v, ":")
		if _, ok := c.Volumes[volume]; !ok {
			t.Errorf("%s: there is no volume %s", name, volume)
		}
	}
	for _, n := range s.Networks {
		if _, ok := c.Networks[n]; !ok {
			t.Errorf("%s: there is no network %s", name, n)
		}
	}
}

func TestComposeReachesNoOtherMachine(t *testing.T) {
	c := compose(t)
	if got := strings.Join(slices.Sorted(maps.Keys(c.Services)), " "); got != "console mariadb redis shop traffic" {
		t.Errorf("the services are %s", got)
	}

	published := 0
	for name, s := range c.Services {
		if !pinned.MatchString(s.Image) || s.Restart != "unless-stopped" {
			t.Errorf("%s: the image is %q, and it restarts %q", name, s.Image, s.Restart)
		}

		published += len(s.Ports)
		s.isClosed(t, name)

		// What has data keeps it, and no other service than these knows the passwords.
		data := name == "mariadb" || name == "redis"
		if data && (strings.Join(s.Networks, " ") != "data" || len(s.Ports) > 0 || len(s.Volumes) != 1) {
			t.Errorf("%s: the networks are %s, the ports %s, the volumes %s", name, s.Networks, s.Ports, s.Volumes)
		}
		c.names(t, name, s)
		if (data || name == "console") && len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s: it has no healthcheck", name)
		}
	}

	// The database and Redis have passwords that all know, or none.
	if internal := c.Networks["data"].Internal; published != 2 || !internal {
		t.Errorf("%d ports are published, and the network of the data is internal: %t", published, internal)
	}
}

// The console understands its flags, its variables and the command of its healthcheck, and they
// name the other services as they are.
func TestComposeIsWhatTheConsoleReads(t *testing.T) {
	c := compose(t)
	console := c.Services["console"]

	// A variable that is not asked for is one that the console does not know.
	unread := maps.Clone(console.Environment)
	got, err := config.Parse(console.Command, func(name string) string {
		delete(unread, name)
		return console.Environment[name]
	}, io.Discard)
	if err != nil || len(unread) > 0 {
		t.Fatalf("%v; no variable of the console is %v", err, unread)
	}

	opensDatabase(t, got.DB, c.Services["mariadb"].Environment)
	if got.Redis == nil || strings.Join(got.Redis.Addrs, " ") != "redis:6379" {
		t.Errorf("Redis is %v", got.Redis)
	}

	// The port inside is the one that it serves on, which is where the healthcheck asks.
	if got.Listen != ":8080" || loopback.FindStringSubmatch(console.Ports[0])[2] != "8080" {
		t.Errorf("it serves on %s, and publishes %s", got.Listen, console.Ports)
	}
	test := console.Healthcheck.Test
	if len(test) != 3 || test[1] != "/headgate-console" || commandOf(test[2:]) == nil {
		t.Errorf("the healthcheck is %s", test)
	}
}

// opensDatabase compares the URL of the database with the variables of its server: what a person
// changes in one place has to be the same in the other.
func opensDatabase(t *testing.T, text string, env map[string]string) {
	t.Helper()
	db, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	password, _ := db.User.Password()
	if db.Host != "mariadb" || db.User.Username() != env["MARIADB_USER"] || password != env["MARIADB_PASSWORD"] ||
		db.Path != "/"+env["MARIADB_DATABASE"] || password == "" {
		t.Errorf("the database is %s, and the server has %v", db.Redacted(), env)
	}
}

// The shop has the flags that it is given.
func TestComposeIsWhatTheShopReads(t *testing.T) {
	source, err := os.ReadFile("../../examples/shop/main.go")
	if err != nil {
		t.Fatal(err)
	}

	// Each flag is followed by its value.
	shop := compose(t).Services["shop"]
	for i := 0; i < len(shop.Command); i += 2 {
		if name := strings.TrimPrefix(shop.Command[i], "-"); !strings.Contains(string(source), `("`+name+`", `) {
			t.Errorf("the shop has no flag %q", shop.Command[i])
		}
	}
}

// What is built has a recipe, which names versions and a user without rights.
func TestComposeBuildsFromTheDockerfile(t *testing.T) {
	for name, s := range compose(t).Services {
		if s.Build.Target == "" {
			continue
		}

		text, err := os.ReadFile(filepath.Join("deploy", s.Build.Context, s.Build.Dockerfile))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		// A stage ends where the next one begins.
		_, stage, _ := strings.Cut(string(text), "FROM scratch AS "+s.Build.Target+"\n")
		stage, _, _ = strings.Cut(stage, "\nFROM ")
		if !strings.Contains(stage, "\nUSER 65532:65532\n") {
			t.Errorf("%s: the stage %s runs as root, or is none", name, s.Build.Target)
		}

		// A program that needs a library would not start in an empty image.
		programs := regexp.MustCompile(`(?m)^RUN .*go .*build.*$`).FindAllString(string(text), -1)
		for _, p := range programs {
			if !strings.HasPrefix(p, "RUN CGO_ENABLED=0 ") {
				t.Errorf("%s is not static", p)
			}
		}

		// Stages of this file need no version, nor does the empty image.
		for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(text), -1) {
			if m[1] != "scratch" && m[1] != "build" && !regexp.MustCompile(`:\d+\.\d+-`).MatchString(m[1]) {
				t.Errorf("the image %s has no version", m[1])
			}
		}
		if len(programs) != 2 {
			t.Errorf("%d programs are built", len(programs))
		}
	}
}
