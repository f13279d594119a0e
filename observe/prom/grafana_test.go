package prom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/scenario"
	"github.com/headgate/headgate/observe/prom"
)

const grafana = "../../docs/grafana/"

// running starts a program with metrics, in which things happen between any two readings, and
// returns its address.
func running(t *testing.T, app *scenario.App) string {
	t.Helper()
	return program(t, app).Listener.Addr().String()
}

// program is running, of a server that may be closed.
func program(t *testing.T, app *scenario.App) *httptest.Server {
	t.Helper()
	m, registry := registered(t, prom.Options{})
	m.Install(&app.Config)
	app.Open()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics.ServeHTTP(w, r)
		app.Tick(context.Background())
	}))
	t.Cleanup(s.Close)
	return s
}

// redisExporter starts what reports the memory of a Redis, as redis_exporter does.
func redisExporter(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "redis_memory_used_bytes 905\nredis_memory_max_bytes 1000\n")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// server is a Prometheus server.
type server struct{ address string }

// prometheusServer starts one that reads the programs, by job, and evaluates the alerts.
func prometheusServer(t *testing.T, jobs map[string][]string) server {
	t.Helper()
	program := test.Program(t, "prometheus", "prometheus")

	dir := t.TempDir()

	// The alerts of the repository, as they are.
	alerts, err := filepath.Abs(grafana + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}

	// Short intervals, so that the test need not wait for minutes.
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 200ms}\nrule_files: [%q]\nscrape_configs:\n",
		alerts)
	for job, targets := range jobs {
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%s]}]}\n", job, strings.Join(targets, ", "))
	}

	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	s := server{freeport.Addr(t)}
	log := &strings.Builder{}
	run := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+s.address)
	run.Stderr = log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	return s
}

// get asks the API and reads the data of the answer.
func (s server) get(path string, query url.Values, data any) error {
	r, err := http.Get("http://" + s.address + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()

	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}

	// The errors of the API are in the answer, beside the data.
	answer := struct {
		Error string
		Data  any
	}{Data: data}

	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}

	if answer.Error != "" {
		return fmt.Errorf("%s", answer.Error)
	}
	return nil
}

// sample is a value of a query.
type sample struct {
	Metric map[string]string
	Value  [2]any // the time and the text of the value
}

func (s sample) value() float64 {
	v, err := strconv.ParseFloat(s.Value[1].(string), 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// query returns the values of an expression at a time.
func (s server) query(expr string, at time.Time) ([]sample, error) {
	var data struct{ Result []sample }
	err := s.get("query", url.Values{"query": {expr}, "time": {at.Format(time.RFC3339Nano)}}, &data)
	return data.Result, err
}

// alert is an alert of the server.
type alert struct {
	Name, Health, LastError, State string
	Alerts                         []struct{ Labels map[string]string }
}

func (s server) alerts() (list []alert, err error) {
	var data struct{ Groups []struct{ Rules []alert } }
	err = s.get("rules", nil, &data)
	for _, g := range data.Groups {
		list = append(list, g.Rules...)
	}
	return list, err
}

// until tries again until there is no error.
func until(t *testing.T, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// dashboard is what the test reads of a dashboard.
type dashboard struct {
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(grafana + "headgate.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The figures of these panels are known to the last digit, by the legend of the line.
var figures = map[string]map[string]float64{
	"Share refused": {"refused": 5. / scenario.Requests, "failed open": 1. / scenario.Requests,
		"failed closed": 1. / scenario.Requests},
	"Calls and batches": {"operations in a call": 5},
	"What decides":      {"local": 2, "store": 0, "open": 0, "closed": 0},

	// From 1 s to 2.5 s, of which all leases are held 2 s.
	"Time of a lease":          {"p50": 1.75, "p90": 2.35, "p99": 2.485},
	"Units taken ahead":        {"visitors": 80},
	"Bans":                     {"visitors": 2},
	"Revision of the policies": {"": 12},
}

// Grafana sends the queries of the dashboard and Prometheus evaluates the alerts, over
// programs in which everything happens that they are about. A healthy program has no alert.
func TestDashboardAndAlerts(t *testing.T) {
	t.Parallel() // the server waits for 5 s before it reads

	// Two programs for the figures, two that run different revisions, and a healthy one. Of two one
	// ends, and a Redis is nearly full.
	ending := program(t, &scenario.App{Revision: "12", Healthy: true})
	jobs := map[string][]string{
		"shop": {running(t, &scenario.App{Revision: "12"}), running(t, &scenario.App{Revision: "12"})},
		"rollout": {running(t, &scenario.App{Revision: "12", Healthy: true}),
			running(t, &scenario.App{Revision: "13", Healthy: true})},
		"healthy": {running(t, &scenario.App{Revision: "12", Healthy: true})},
		"ending":  {running(t, &scenario.App{Revision: "12", Healthy: true}), ending.Listener.Addr().String()},
		"redis":   {redisExporter(t)},
	}

	s := prometheusServer(t, jobs)
	var at time.Time

	// Rates need three readings of each program.
	until(t, func() error {
		at = time.Now()
		got, err := s.query(`up == 1 and on (job, instance) count_over_time(headgate_store_mode{headgate_mode="store"}[10s]) >= 3`, at)
		if err == nil && len(got) < 7 {
			err = fmt.Errorf("only %d programs were read 3 times", len(got))
		}
		return err
	})

	ending.Close()
	t.Run("alerts", func(t *testing.T) { s.checkAlerts(t) })
	ids, lines := map[int]bool{}, 0
	for _, p := range readDashboard(t).Panels {
		// Each panel has a place of its own in the 24 columns.
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%d %q is in the place of another panel", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" {
			t.Run(p.Title, func(t *testing.T) { lines += s.checkPanel(t, p, at, jobs["shop"]) })
		}
	}

	// A dashboard that lost its data would have few lines and no error.
	if lines < 60 {
		t.Errorf("only %d lines", lines)
	}
	t.Run("variables", func(t *testing.T) { s.checkVariables(t) })
}

// about is the job that an alert is about. Everything else is wrong in the shop, and only there.
func about(alert string) string {
	switch alert {
	case "HeadgatePoliciesDiffer":
		return "rollout"
	case "HeadgateInstancesLost":
		return "ending"
	case "HeadgateRedisNearlyFull":
		return "redis"
	}
	return "shop"
}

// checkAlerts checks that each alert is raised, for the job that it is about.
func (s server) checkAlerts(t *testing.T) {
	var list []alert
	until(t, func() (err error) {
		list, err = s.alerts()
		for _, a := range list {
			// All alerts are raised in the end; until then one that is not is no error.
			if err == nil && (!a.raised(about(a.Name)) || a.Health != "ok") {
				err = fmt.Errorf("%s: %s %s %s", a.Name, a.State, a.Health, a.LastError)
			}
		}
		return err
	})

	if len(list) != 14 {
		t.Errorf("%d alerts", len(list))
	}
	for _, a := range list {
		// A program that answers too late on a busy machine looks as if it had ended.
		if a.Name == "HeadgateInstancesLost" {
			continue
		}
		for _, one := range a.Alerts {
			if one.Labels["job"] != about(a.Name) {
				t.Errorf("%s: %v, want one of the job %s", a.Name, one.Labels, about(a.Name))
			}
		}
	}
}

// raised reports whether the alert is raised for a job.
func (a alert) raised(job string) bool {
	for _, one := range a.Alerts {
		if one.Labels["job"] == job {
			return true
		}
	}
	return false
}

// checkPanel checks the queries of a panel, and returns how many lines it has.
func (s server) checkPanel(t *testing.T, p panel, at time.Time, instances []string) (lines int) {
	if p.Description == "" || len(p.Targets) == 0 {
		t.Error("the panel has no description or no query")
	}

	got := map[string]float64{}
	for _, target := range p.Targets {
		for _, sample := range s.answers(t, target.Expr, at) {
			got[legend(target.LegendFormat, sample.Metric)] = sample.value()
			lines++
		}
	}
	for name, want := range figures[p.Title] {
		// Figures that the scenario makes certain are compared; a name left out is that of the
		// instance.
		if name == "" {
			name = instances[0]
		}
		if figure, known := got[name]; !known || math.Abs(figure-want) > 1e-9 {
			t.Errorf("%q is %v, want %v", name, got, want)
		}
	}
	return lines
}

// answers returns the values of a query of the dashboard in the job shop. There are some, and
// each is a number.
func (s server) answers(t *testing.T, expr string, at time.Time) []sample {
	t.Helper()

	// What Grafana puts in place of its variables.
	expr = strings.NewReplacer("$__rate_interval", "10s", "$job", "shop", "$instance", ".*", "$rule",
		".*").Replace(expr)
	got, err := s.query(expr, at)
	if err != nil || len(got) == 0 {
		t.Errorf("%s: no data, %v", expr, err)
	}
	for _, sample := range got {
		if v := sample.value(); math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%s: %v is %v", expr, sample.Metric, v)
		}
	}
	return got
}

func legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return format
}

// checkVariables checks that each variable has values that the server knows.
func (s server) checkVariables(t *testing.T) {
	var names []string
	for _, v := range readDashboard(t).Templating.List {
		names = append(names, v.Name)

		if v.Type != "query" {
			continue
		}
		text := v.Query.(map[string]any)["query"].(string)

		// Grafana's form is label_values(series, label).
		inner, ok := strings.CutPrefix(strings.TrimSuffix(text, ")"), "label_values(")
		i := strings.LastIndex(inner, ", ")
		if !ok || i < 0 {
			t.Fatalf("%q", text)
		}
		var values []string
		match := strings.ReplaceAll(inner[:i], "$job", "shop")

		if err := s.get("label/"+inner[i+2:]+"/values", url.Values{"match[]": {match}}, &values); err != nil ||
			len(values) == 0 {
			t.Errorf("%s: %q %v", text, values, err)
		}
	}
	if !slices.Equal(names, []string{"datasource", "job", "instance", "rule"}) {
		t.Errorf("%q", names)
	}
}
