//go:build !race

package redisstore

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// repository is the folder of the module.
const repository = "../.."

// folders are those that the store needs.
var folders = []string{"core", "internal", "lua", "observe", "store"}

// service is the program that both versions run.
const service = "store/redisstore/testdata/version"

// git returns what a command of git prints.
func git(args ...string) ([]byte, error) {
	return exec.Command("git", append([]string{"-C", repository}, args...)...).Output()
}

// commitBefore returns the newest commit that had other scripts. The test is left out where
// there is no history.
func commitBefore(t *testing.T) string {
	t.Helper()
	commits, err := git("rev-list", "--first-parent", "HEAD")
	if err != nil {
		test.Skip(t, "the repository has no history here")
	}
	for commit := range strings.FieldsSeq(string(commits)) {
		if _, err := git("diff", "--quiet", commit, "--", "lua/*.lua"); err != nil {
			return commit
		}
	}
	test.Skip(t, "the history of the repository is cut off before the scripts changed")
	return ""
}

// checkOut puts the module as it was at a commit into a new folder, with the present
// dependencies and the present service, and returns the folder.
func checkOut(t *testing.T, commit string) string {
	t.Helper()
	files, err := git("archive", commit)
	if err != nil {
		t.Fatal(err)
	}

	// The archive has the module as it was. Its tests are not needed, and the service is the
	// present one.
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(files)); ; {
		file, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}

		folder, _, _ := strings.Cut(file.Name, "/")
		if file.Typeflag != tar.TypeReg || !slices.Contains(folders, folder) ||
			strings.HasSuffix(file.Name, "_test.go") {
			continue
		}

		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.FromSlash(file.Name)), text)
	}

	// The dependencies may have changed since; both versions are built with the present ones.
	for _, same := range []string{"go.mod", "go.sum", service + "/main.go"} {
		text, err := os.ReadFile(filepath.Join(repository, same))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, same), text)
	}

	return dir
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// version is a service of one version, in a process of its own.
type version struct {
	t       *testing.T
	name    string
	orders  *json.Encoder
	reports *json.Decoder
}

// order is what a service is asked for, and report is what it answers; see testdata/version.
type order struct {
	Limit, Key, Lease string
	Verb              core.Verb
	Cost              int64
	N, Callers        int
	Ban               *plainBan
}

// plainBan is a core.Ban whose form in JSON is that of its fields in every version.
type plainBan core.Ban

type report struct {
	Allowed, Banned, Errors, Taken int
	Err                            string
}

// run builds the service of the module in a folder, and starts it.
func run(t *testing.T, name, dir, addr, prefix string) *version {
	t.Helper()

	program := filepath.Join(t.TempDir(), "service")
	build := exec.Command("go", "build", "-C", dir, "-o", program, "./"+service)
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the %s version is not built: %v\n%s", name, err, out)
	}

	cmd := exec.Command(program, "-redis", addr, "-prefix", prefix, "-now", strconv.FormatInt(storetest.Epoch, 10))

	// What the service says of itself goes to the test's output.
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the %s version: %v", name, err)
		}
	})
	return &version{t, name, json.NewEncoder(in), json.NewDecoder(out)}
}

// ask has the service carry out an order.
func (v *version) ask(o order) (r report) {
	v.t.Helper()
	if err := v.orders.Encode(o); err != nil {
		v.t.Fatal(v.name, err)
	}
	if err := v.reports.Decode(&r); err != nil {
		v.t.Fatal(v.name, err)
	}
	if r.Errors != 0 {
		v.t.Errorf("%s, %+v: %d errors, first %s", v.name, o, r.Errors, r.Err)
	}
	return r
}

// atOnce has all services carry out an order at the same time, and returns the sum of what
// they report.
func atOnce(o order, all ...*version) (sum report) {
	reports := make([]report, len(all))
	var asked sync.WaitGroup
	for i, v := range all {
		// Leases have the version's name, so that one can release those of the other.
		asked.Go(func() {
			own := o
			own.Lease = v.name
			reports[i] = v.ask(own)
		})
	}

	asked.Wait()
	for _, r := range reports {
		sum.Allowed, sum.Banned, sum.Taken = sum.Allowed+r.Allowed, sum.Banned+r.Banned, sum.Taken+r.Taken
	}
	return sum
}

// The commit before the present scripts and the present version, in a process each, share one
// Redis under load, in turns whichever begins and at once: never more than the limit is
// admitted, no call fails, and bans, leases, debits and refunds of one hold for the other.
func TestCommitBeforeSharesItsKeys(t *testing.T) {
	test.Long(t, "it builds the commit before")
	test.Program(t, "git", "git")
	t.Parallel()
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	old := run(t, "old", checkOut(t, commitBefore(t)), addr, prefix)
	present := run(t, "present", repository, addr, prefix)

	// Every algorithm, with a capacity that is the quota and with one that is not.
	for _, text := range []string{
		"1000/1h", "1000/1h burst=200", "1000/1h fixed-window", "500/1h sliding-log",
		"1000/1h sliding-window", "1000/1h token-bucket burst=700", "1000/year",
	} {
		shareInTurns(t, text, old, present)
		shareInTurns(t, text, present, old)
		shareAtOnce(t, text, old, present)
		shareBans(t, text, old, present)
		shareBans(t, text, present, old)
	}

	shareLeases(t, old, present)
	shareLeases(t, present, old)
}

// shareInTurns has the versions take in turns.
func shareInTurns(t *testing.T, text string, first, second *version) {
	t.Helper()
	most := int(core.MustParseLimit(text).Capacity())

	// Two thirds of the limit by turns, then the rest and no more, however often it is asked.
	key := fmt.Sprint("in turns, ", first.name, text)
	got := [4]int{}
	for i, n := range [4]int{most / 3, most / 3, most, 50} {
		v := [2]*version{first, second}[i%2]
		got[i] = v.ask(order{Limit: text, Key: key, Cost: 1, N: n, Callers: 16}).Allowed
	}

	if want := [4]int{most / 3, most / 3, most - 2*(most/3), 0}; got != want {
		t.Errorf("%s, in turns from the %s version on: %v admitted, want %v", text, first.name, got, want)
	}

	if core.MustParseLimit(text).Algorithm == core.SlidingLog {
		return // which has no debits
	}

	// A debit of 60 fits into the debt of 100, and of the next one 40 do.
	debit := order{Limit: text + " debt=100", Key: key, Verb: core.Debit, Cost: 60, N: 1, Callers: 1}
	if a, b := first.ask(debit).Taken, second.ask(debit).Taken; a != 60 || b != 40 {
		t.Errorf("%s: debits of 60 each charged %d and %d, want 60 and 40", text, a, b)
	}

	// Two refunds of 60 pay the debt of 100 and leave 20 units.
	refund := order{Limit: text, Key: key, Verb: core.Refund, Cost: 60, N: 2, Callers: 1}
	second.ask(refund)
	if n := first.ask(order{Limit: text, Key: key, Cost: 1, N: most, Callers: 16}).Allowed; n != 20 {
		t.Errorf("%s: %d admitted after 20 units were given back", text, n)
	}
}

// shareAtOnce has both versions take at once.
func shareAtOnce(t *testing.T, text string, all ...*version) {
	t.Helper()
	most := int(core.MustParseLimit(text).Capacity())
	o := order{Limit: text, Key: "at once" + text, Cost: 1, N: 2 * most, Callers: 32}
	if n := atOnce(o, all...).Allowed; n != most {
		t.Errorf("%s: %d admitted at once, want %d", text, n, most)
	}
}

// shareBans has the first version, or both at once, ban a key, and looks whether the other
// heeds and lifts it.
func shareBans(t *testing.T, text string, first, second *version) {
	t.Helper()
	most := int(core.MustParseLimit(text).Capacity())
	o := order{Limit: text, Key: "banned by the " + first.name + text, Cost: 1, N: most + 100, Callers: 16,
		Ban: &plainBan{Strikes: 50, Within: time.Hour, For: time.Hour, Max: time.Hour}}

	// Two versions ask at once. The first 49 refusals are strikes, the 50th begins the ban.
	sum := atOnce(o, first, second)
	if sum.Allowed != most || sum.Banned != 2*o.N-most-49 {
		t.Errorf("%s: %d admitted and %d banned, want %d and %d", text, sum.Allowed, sum.Banned, most, 2*o.N-most-49)
	}

	// The ban's units are used up as well, so that without the ban nothing is admitted either.
	without := o
	without.Ban = nil
	if n := second.ask(without).Allowed; n != 0 {
		t.Errorf("%s: the %s version, without the ban, admits %d", text, second.name, n)
	}

	if n := first.ask(o).Banned; n != o.N {
		t.Errorf("%s: the %s version has banned %d of %d", text, first.name, n, o.N)
	}

	// After a lift strikes begin at none: 49 are not enough for another ban.
	lift := o
	lift.Verb, lift.N, lift.Cost = core.Lift, 1, 0
	first.ask(lift)
	impose := lift
	impose.Verb = core.Impose
	o.N = 49
	if n := second.ask(o).Banned; n != 0 {
		t.Errorf("%s: after the %s version has lifted the ban, %d are banned", text, first.name, n)
	}

	// A ban that is imposed needs no strikes.
	first.ask(impose)
	if n := second.ask(o).Banned; n != o.N {
		t.Errorf("%s: after the %s version has imposed a ban, %d of %d are banned", text, first.name, n, o.N)
	}
}

// shareLeases has both versions take leases at once, and each release those of the other.
func shareLeases(t *testing.T, first, second *version) {
	t.Helper()
	const text = "5 concurrent ttl=1h"

	o := order{Limit: text, Key: "leases " + first.name, Cost: 1, N: 60, Callers: 12}
	if n := atOnce(o, first, second).Allowed; n != 5 {
		t.Errorf("%d leases are held at once, want 5", n)
	}

	// Each version releases what the other holds.
	o.Verb = core.Refund
	for _, v := range []*version{first, second} {
		o.Lease = map[*version]string{first: second.name, second: first.name}[v]
		v.ask(o)
	}

	o.Verb, o.Lease = core.Take, "later"
	if n := second.ask(o).Allowed; n != 5 {
		t.Errorf("%d leases are had after all were released, want 5", n)
	}
}
