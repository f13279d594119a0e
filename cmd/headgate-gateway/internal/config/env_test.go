package config

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// Every setting of the environment means what it means in the file.
func TestParseReadsEverySettingFromTheEnvironment(t *testing.T) {
	fromFile, err := parse(nil, "-config", file(t, all))
	if err != nil {
		t.Fatal(err)
	}

	lists := map[string][]string{}
	for _, arg := range flagsOf(all) {
		name, text, _ := strings.Cut(arg[1:], "=")
		lists[name] = append(lists[name], text)
	}
	var environ []string
	for name, texts := range lists {
		environ = append(environ, Variable(name)+"="+strings.Join(texts, ", "))
	}

	got, err := Parse(nil, environ, io.Discard)
	if err != nil || !isSameConfig(got, fromFile) {
		t.Errorf("the environment gives\n%+v %v, want what the file gives:\n%+v", got, err, fromFile)
	}

	// The name of the file may come from there too, and a variable that is empty is none.
	got, err = parse(map[string]string{"HEADGATE_GATEWAY_CONFIG": file(t, "listen: 127.0.0.1:7\n"),
		"HEADGATE_GATEWAY_APP": ""})
	if err != nil || got.Listen != "127.0.0.1:7" || !slices.Equal(got.Apps, []string{DefaultApp}) ||
		got.Origin.Warnings != nil {
		t.Errorf("%s %q %q %v", got.Listen, got.Apps, got.Origin.Warnings, err)
	}
}

func TestMistakesInTheEnvironmentAreNamedByTheirVariable(t *testing.T) {
	_, err := parse(map[string]string{"HEADGATE_GATEWAY_LISTEN": "8089", "HEADGATE_GATEWAY_MAX_KEYS": "many",
		"HEADGATE_GATEWAY_JSON_SECRET": "s3cret"})
	for _, want := range []string{`HEADGATE_GATEWAY_LISTEN: "8089" is not host:port`,
		`HEADGATE_GATEWAY_MAX_KEYS: "many"`, "HEADGATE_GATEWAY_JSON_SECRET: it has fewer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error tells the secret: %v", err)
	}
}

func TestUnknownVariablesAreWarnedOfWithTheNearest(t *testing.T) {
	c, err := parse(map[string]string{"HEADGATE_GATEWAY_LISTN": "x", "HEADGATE_REDIS": "redis://:s3cret@h",
		"HEADGATE_GATEWAY_VERSION": "true", "HEADGATE_CONSOLE_URL": "x", "PATH": "x", "HEADGATE": "x"})
	want := []string{
		`the environment variable "HEADGATE_GATEWAY_LISTN" is no setting; the nearest is HEADGATE_GATEWAY_LISTEN`,
		`the environment variable "HEADGATE_GATEWAY_VERSION" is no setting; the nearest is HEADGATE_GATEWAY_REDIS`,
		`the environment variable "HEADGATE_REDIS" is no setting; the nearest is HEADGATE_GATEWAY_REDIS`,
	}
	if err != nil || len(c.Origin.Warnings) != 3 || c.Origin.Warnings[0] != want[0] || c.Origin.Warnings[2] != want[2] {
		t.Errorf("%q %v, want\n%q", c.Origin.Warnings, err, want)
	}
}

// The documentation has the table that the program writes with -settings.
func TestDocumentationHasTheTable(t *testing.T) {
	const path = "../../../../docs/gateway-settings.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	// To write it: go -C cmd/headgate-gateway run . -settings
	before, _, found := strings.Cut(string(page), "| flag,")
	if !found || string(page) != before+Table() {
		t.Errorf("%s does not end with the table of -settings:\n%s", path, Table())
	}
	if c, err := parse(nil, "-settings", "-listen", "x"); err != nil || !c.Settings {
		t.Errorf("-settings: %+v %v", c, err)
	}
}
