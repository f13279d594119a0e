package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay"
)

// combined returns lines of a combined log: one a second from each address in turn.
func combined(seconds int, addresses ...string) string {
	var b strings.Builder
	at := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for i := range seconds {
		fmt.Fprintf(&b, "%s - - [%s] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n", addresses[i%len(addresses)],
			at.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"))
	}
	return b.String()
}

const onePolicy = "policies:\n- {name: api, apps: [shop], limit: 10/1m fixed-window, key: ip}\n"

func TestPlanSaysWhoWouldBeRefused(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	log := file(t, "access.log", combined(60, "192.0.2.1", "192.0.2.1", "192.0.2.2")+"garbage\x1b[2J\n")

	// 40 and 20 requests in a minute, of which ten each pass.
	got := call(t, "", "plan", "-policies", policies, log).want(t, fine,
		"access.log (combined): 60 requests in 61 lines, 1 broken", `line 61: it has no time: "garbage\x1b[2J"`,
		"times are whole seconds", "2026-11-28 08:00:00 to 2026-11-28 08:00:59 UTC: 60 requests of 2 callers",
		"40 requests (66.67%) of 2 callers (100.00%) would be refused", "api     192.0.2.1     30",
		"2026-11-28 08:00:15  2026-11-28 08:00:59")
	if strings.Contains(got.out, "\x1b") {
		t.Errorf("%q", got.out)
	}
}

func TestPlanFailsIfTooManyAreDenied(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	log := combined(20, "192.0.2.1")
	call(t, log, "plan", "-policies", policies, "-fail-if-denied", "49.9%", "-").
		want(t, tooMany, "failed: more than 49.9%")
	call(t, log, "plan", "-policies", policies, "-fail-if-denied", "50%", "-").want(t, fine)
	call(t, log, "plan", "-json", "-policies", policies, "-fail-if-denied", "0%", "-").want(t, tooMany)
	for _, bad := range []string{"5", "-1%", "101%", "NaN%", "x"} {
		call(t, log, "plan", "-policies", policies, "-fail-if-denied", bad, "-").want(t, usage, "is not a share")
	}
}

func TestPlanMergesLogsAndReadsGzip(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(combined(8, "192.0.2.1")))
	z.Close()
	whole := file(t, "access.log.gz", b.String())

	// Both logs are of the same seconds, so their requests count together.
	out := call(t, combined(8, "192.0.2.1"), "plan", "-json", "-policies", policies, whole, "-").want(t, fine).out
	var got planResult
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Requests != 16 || got.Refused != 6 || len(got.Logs) != 2 || got.Policies[0].First.Second() != 5 {
		t.Errorf("%s", out)
	}

	// A file that is cut off is a finding, and what is whole of it counts.
	cut := file(t, "cut.gz", b.String()[:b.Len()-8])
	call(t, "", "plan", "-policies", policies, cut).want(t, findings, "unexpected EOF, so what follows in it is missing")
}

func TestPlanComparesWithThePoliciesInForce(t *testing.T) {
	before := file(t, "before.yaml", onePolicy)
	after := file(t, "after.yaml", strings.Replace(onePolicy, "10/1m", "4/1m", 1)+
		"- {name: login, apps: [shop], limit: 1/1m, key: user}\n")
	log := combined(20, "192.0.2.1")

	// What changes shows in both directions.
	call(t, log, "plan", "-policies", after, "-against", before, "-").want(t, fine,
		"which would refuse 10 requests", "allow -> deny  6 requests of 1 caller",
		"deny -> allow  0 requests of 0 callers",
		"left out of the policies: login needs the user, which the logs have not")
	call(t, log, "plan", "-policies", before, "-against", after, "-app", "shop", "-").want(t, fine,
		"allow -> deny  0 requests", "deny -> allow  6 requests", "left out of the policies in force: login needs")
	call(t, log, "plan", "-policies", before, "-app", "other", "-").want(t, fine, "0 requests (0.00%)")
}

func TestPlanWithMistakes(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	log := file(t, "access.log", combined(1, "192.0.2.1"))

	// What is called with a mistake reads nothing.
	call(t, "", "plan", log).want(t, usage, "-policies")
	call(t, "", "plan", "-policies", policies).want(t, usage, "no log")
	call(t, "", "plan", "-policies", policies, "/does/not/exist").want(t, usage)
	call(t, "", "plan", "-policies", "/does/not/exist", log).want(t, usage)
	call(t, "", "plan", "-policies", policies, "-format", "xml", log).want(t, usage, "combined, json, envoy, alb")
	call(t, "", "plan", "-policies", policies, "-reorder", "2h", log).want(t, usage, "1h")
	call(t, "", "plan", "-policies", policies, "-proxies", "10.0.0.0/99", log).want(t, usage, "10.0.0.0/99")

	// What was read and is no log, or no policy, is a finding.
	call(t, "", "plan", "-policies", file(t, "bad.yaml", someMistakes), log).want(t, findings, ":4:3: mistake")
	call(t, "\x00\x01\xff\n\xfe", "plan", "-policies", policies, "-").want(t, findings, "0 requests in 2 lines, 2 broken",
		"no request was read")
	call(t, "", "plan", "-policies", policies, "-").want(t, findings, "0 lines")
}

func TestProgressIsForTerminals(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	log := file(t, "access.log", combined(2*everyLines, "192.0.2.1"))

	// It is shown, and then gone.
	var out, err bytes.Buffer
	e := &env{in: os.Stdin, out: &out, err: &err, progress: true}
	if code := run(e, []string{"plan", "-policies", policies, log}); code != fine {
		t.Fatalf("%d %s", code, err.String())
	}
	if !strings.Contains(err.String(), "16,384 requests, ") || !strings.HasSuffix(err.String(), "\r\x1b[K") {
		t.Errorf("%q", err.String())
	}
	if got := call(t, "", "plan", "-policies", policies, log); got.err != "" {
		t.Errorf("%q", got.err)
	}

	// Half of the file after two seconds: as long again is left.
	p := progress{logs: &logs{size: 100, read: 50}, lines: 2_000_000}
	if got, want := p.text(2*time.Second), "2,000,000 requests, 1,000,000 a second, 50%, 2s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A log without a request says nothing of what logs have, so the others decide.
func TestPlanPassesOverEmptyLogs(t *testing.T) {
	policies := file(t, "limits.yaml", onePolicy)
	log, empty := file(t, "access.log.1", combined(20, "192.0.2.1")), file(t, "access.log", "")

	// A broken one has no request in what is looked at first.
	garbage := strings.Repeat("garbage\n", 10_000)
	broken := file(t, "broken.log", garbage)
	for _, none := range []string{empty, broken} {
		call(t, "", "plan", "-policies", policies, "-fail-if-denied", "0.1%", none, log).want(t, tooMany,
			"10 requests (50.00%)")
		call(t, "", "suggest", none, log).want(t, fine, "20/1m")
	}

	// Where no log has one at its beginning, nothing is said.
	late := file(t, "late.log", garbage+combined(20, "192.0.2.1"))
	for _, args := range [][]string{{"plan", "-policies", policies}, {"suggest"}, {"suggest", "-json"},
		{"plan", "-json", "-fail-if-denied", "0.1%", "-policies", policies}} {
		got := call(t, "", append(args, empty, late)...).want(t, findings, unknown, "late.log")
		if strings.Contains(got.out, "left out") {
			t.Errorf("%s", got.out)
		}
	}
	call(t, "", "suggest", "-json", empty).want(t, findings, unknown)
}

// Few refusals are no success where the policies did not decide.
func TestPlanFailsIfItCannotDecide(t *testing.T) {
	const user = "- {name: login, apps: [shop], limit: 1/1m, key: user}\n"
	policies, both := file(t, "limits.yaml", onePolicy), file(t, "both.yaml", onePolicy+user)
	log := combined(20, "192.0.2.1")

	const failed = "failed: -fail-if-denied cannot decide: "
	for _, row := range []struct {
		policies, log, want string
		args                []string
	}{
		{both, log, "1 policy is left out", nil},
		{file(t, "user.yaml", "policies:\n"+user), log, "1 policy is left out", nil},
		{policies, log, "no policy is in force", []string{"-app", "other"}},
		{policies, log + strings.Repeat("x\n", 21), "most lines of - are broken", nil},
		{policies, combined(20, addresses(20)...), "requests shared limits", []string{"-max-keys", "2"}},
	} {
		// The line shows in both forms.
		args := append([]string{"plan", "-policies", row.policies, "-fail-if-denied", "50%", "-"}, row.args...)
		call(t, row.log, args...).want(t, findings, failed, row.want)
		call(t, row.log, append(args, "-json")...).want(t, findings, failed[len("failed: "):], row.want)

		// What is refused for certain is more than a doubt.
		if row.policies == both {
			args[4] = "1%"
			call(t, row.log, args...).want(t, tooMany, "failed: more than 1%")
		}
	}

	// Half of the lines may be broken.
	call(t, log+strings.Repeat("x\n", 20), "plan", "-policies", policies, "-fail-if-denied", "50%", "-").want(t, fine)

	// What a policy could not decide passed, and counts as a gap too.
	undecided := planResult{Report: &replay.Report{Policies: make([]replay.PolicyReport, 1), Undecided: 2}, cut: true}
	if got, want := strings.Join(undecided.gaps(), "; "), "2 requests were not decided; a log is cut off"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// addresses returns n addresses.
func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("192.0.2.%d", i))
	}
	return list
}
