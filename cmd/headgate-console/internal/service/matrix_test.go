package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/policy"
)

// verdict is the outcome of a call.
type verdict string

const (
	yes    verdict = "yes"    // done, or refused for a reason other than the actor
	denied verdict = "denied" // ErrDenied
	hidden verdict = "hidden" // ErrNotFound, as if there were nothing
	out    verdict = "out"    // ErrNotLoggedIn
	change verdict = "change" // ErrPasswordChange
)

func verdictOf(err error) verdict {
	switch {
	case errors.Is(err, ErrDenied):
		return denied
	case errors.Is(err, ErrNotFound):
		return hidden
	case errors.Is(err, ErrNotLoggedIn):
		return out
	case errors.Is(err, ErrPasswordChange):
		return change
	}
	return yes
}

// columns are the actors of the matrix, in the order of its columns.
var columns = []string{"administrator", "owner of a", "viewer of a", "owner of b", "owner's token",
	"owner's read token", "administrator's token", "newcomer", "disabled", "nobody"}

// call is what a method of a world is called with.
type call struct {
	*world
	ctx context.Context
	a   Actor
}

// errOf returns the error of a call, and errOf2 that of one with two other results.
func errOf(_ any, err error) error     { return err }
func errOf2(_, _ any, err error) error { return err }

// row is a method and what each actor may do with it.
type row struct {
	method string
	call   func(call) error
	want   []verdict
}

// noActor lists the methods that take no actor.
var noActor = []string{"Ledger", "Login", "LoginCode", "Authenticate", "AuthenticateToken", "AuthenticateByProxy",
	"LoginByProvider", "RefuseProvider", "Bootstrap", "Recover", "Outbox", "Calendar", "Alarm", "Full", "Parsing"}

// matrix has the verdict of every method for each actor. The policy "p" lists the
// application a. Every row runs in its own world.
func matrix() []row {
	managers := []verdict{yes, denied, denied, denied, denied, denied, denied, change, out, out}
	readers := []verdict{yes, yes, yes, hidden, yes, yes, yes, change, out, out}
	writers := []verdict{yes, yes, denied, hidden, yes, denied, yes, change, out, out}
	aboutNames := []verdict{yes, yes, denied, yes, yes, denied, yes, change, out, out}
	owners := []verdict{yes, yes, hidden, hidden, yes, yes, yes, change, out, out}
	keepers := []verdict{yes, yes, hidden, hidden, yes, denied, yes, change, out, out}
	everyone := []verdict{yes, yes, yes, yes, yes, yes, yes, change, out, out}
	persons := []verdict{yes, yes, yes, yes, denied, denied, denied, change, out, out}

	return []row{
		// Policies are read by those who have a role in an application of the policy.
		{"Policy", func(c call) error { return errOf(c.Policy(c.ctx, c.a, "p")) }, readers},
		{"History", func(c call) error { return errOf(c.History(c.ctx, c.a, "p", 0, 0)) }, readers},
		{"Revision", func(c call) error { return errOf(c.Revision(c.ctx, c.a, "p", 1)) }, readers},
		{"SeenInShadow", func(c call) error { return errOf(c.SeenInShadow(c.ctx, c.a, "p")) }, readers},

		// A policy that is hidden is answered as one that does not exist, so it is refused to none.
		{"WouldRefuse", func(c call) error { return errOf(c.WouldRefuse(c.ctx, c.a, sample("p", "a"))) }, everyone},
		{"FreeName", func(c call) error { return errOf(c.FreeName(c.ctx, c.a, "p")) }, everyone},

		// Lists show each actor what is theirs, so they are refused to none.
		{"Policies", func(c call) error { return errOf(c.Policies(c.ctx, c.a, Query{})) }, everyone},
		{"List", func(c call) error { return errOf(c.List(c.ctx, c.a, Query{})) }, everyone},

		// Changes of many policies need the right to each.
		{"PlanSwitch", func(c call) error {
			return errOf(c.PlanSwitch(c.ctx, c.a, []PolicyVersion{{"p", 1}}, policy.Off))
		}, writers},
		{"SwitchPolicies", func(c call) error {
			return errOf(c.SwitchPolicies(c.ctx, c.a, []PolicyVersion{{"p", 1}}, policy.Off))
		}, writers},
		{"UndoSwitch", func(c call) error {
			// An actor takes back what they have changed at an instant, and there is nothing.
			if err := c.UndoSwitch(c.ctx, c.a, time.Unix(0, 0)); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, everyone},
		{"SwitchedAt", func(c call) error { return errOf(c.SwitchedAt(c.ctx, c.a, time.Unix(0, 0))) }, everyone},

		{"PoliciesOf", func(c call) error { return errOf(c.PoliciesOf(c.ctx, c.a, "")) }, everyone},
		{"Export", func(c call) error { return errOf(c.Export(c.ctx, c.a, YAML, "")) }, everyone},
		{"Publishing", func(c call) error { return errOf(c.Publishing(c.ctx, c.a)) }, everyone},
		{"Unable", func(c call) error { return errOf2(c.Unable(c.ctx, c.a)) }, everyone},
		{"TakeOver", func(c call) error { return c.TakeOver(c.ctx, c.a, "7.abc", "p is lost") }, managers},
		{"Deleted", func(c call) error { return errOf2(c.Deleted(c.ctx, c.a, 1, 0)) }, everyone},

		// The traffic of an application is read like a policy of it.
		{"Traffic", func(c call) error { return errOf(c.Traffic(c.ctx, c.a, TrafficQuery{App: "a"})) }, readers},
		{"TrafficByPolicy", func(c call) error {
			return errOf(c.TrafficByPolicy(c.ctx, c.a, TrafficQuery{App: "a"}))
		}, readers},
		{"TrafficCSV", func(c call) error {
			return c.TrafficCSV(c.ctx, c.a, TrafficQuery{App: "a"}, io.Discard)
		}, readers},
		{"TrafficByApp", func(c call) error { return errOf(c.TrafficByApp(c.ctx, c.a, TrafficQuery{})) }, everyone},
		{"Overview", func(c call) error { return errOf(c.Overview(c.ctx, c.a, TrafficQuery{App: "a"})) }, readers},
		{"Markers", func(c call) error { return errOf(c.Markers(c.ctx, c.a, TrafficQuery{App: "a"})) }, readers},
		{"Instances", func(c call) error { return errOf(c.Instances(c.ctx, c.a, "a")) }, readers},
		{"Apps", func(c call) error { return errOf(c.Apps(c.ctx, c.a)) }, everyone},

		// A creation is denied to those who do not own the application: there is nothing to hide.
		{"CreatePolicy", func(c call) error {
			return errOf(c.CreatePolicy(c.ctx, c.a, sample("new", "a")))
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},

		{"UpdatePolicy", func(c call) error {
			p := sample("p", "a")
			p.Version, p.Priority = 1, 5
			_, err := c.UpdatePolicy(c.ctx, c.a, p)
			return err
		}, writers},
		{"DeletePolicy", func(c call) error { return c.DeletePolicy(c.ctx, c.a, "p", 1) }, writers},
		{"PolicyToEdit", func(c call) error {
			return errOf(c.PolicyToEdit(c.ctx, c.a, "policy.update", "p"))
		}, writers},

		// Keys of callers: looking is reading, and a ban, an exception or a limit of its own is a
		// change of the policy.
		{"Top", func(c call) error { return errOf(c.Top(c.ctx, c.a, "a")) }, readers},
		{"LookUpEach", func(c call) error {
			_, _, err := c.LookUpEach(c.ctx, c.a, "x", 10, func(policy.Policy) bool { return true },
				func(policy.Policy) string { return "x" })
			return err
		}, everyone},

		{"ImposeBan", func(c call) error { return c.ImposeBan(c.ctx, c.a, "p", "x", time.Minute) }, writers},
		{"AllowKey", func(c call) error { return errOf(c.AllowKey(c.ctx, c.a, "p", "x", 7)) }, writers},
		{"LimitKey", func(c call) error { return errOf(c.LimitKey(c.ctx, c.a, "p", "x", nil, 7)) }, writers},
		{"BansBeside", func(c call) error { return errOf(c.BansBeside(c.ctx, c.a, []string{"p"})) }, everyone},
		{"BansOfKeys", func(c call) error { return errOf(c.BansOfKeys(c.ctx, c.a, "p", []string{"x"})) }, everyone},
		{"ExplainBans", func(c call) error {
			return c.ExplainBans(c.ctx, c.a, []*KeyBan{{Policy: "p", Key: "x"}})
		}, everyone},
		{"Overrides", func(c call) error { return errOf(c.Overrides(c.ctx, c.a, "p", OverridesQuery{})) }, readers},
		{"SetOverride", func(c call) error {
			return errOf(c.SetOverride(c.ctx, c.a, "p", OverrideChange{"x", "5/1m", ""}))
		}, writers},
		{"PlanOverrides", func(c call) error {
			return errOf(c.PlanOverrides(c.ctx, c.a, OverridesImport{Set: setOf("p x=5/1m")}))
		}, aboutNames},
		{"ImportOverrides", func(c call) error {
			return errOf(c.ImportOverrides(c.ctx, c.a, OverridesImport{Set: setOf("p x=5/1m")}))
		}, aboutNames},
		{"ExportOverrides", func(c call) error { return c.ExportOverrides(c.ctx, c.a, "a", io.Discard) }, readers},
		{"ChangeOverrides", func(c call) error {
			return errOf(c.ChangeOverrides(c.ctx, c.a, "p", []OverrideChange{{"x", "5/1m", ""}}))
		}, writers},
		{"LiftBan", func(c call) error { return c.LiftBan(c.ctx, c.a, "p", "x") }, writers},

		{"KeyPolicy", func(c call) error { return errOf(c.KeyPolicy(c.ctx, c.a, "p", "x")) }, readers},
		{"LookUp", func(c call) error { return errOf(c.LookUp(c.ctx, c.a, "p", "x")) }, readers},
		{"AuditCSV", func(c call) error { return c.AuditCSV(c.ctx, c.a, AuditQuery{}, io.Discard) }, managers},
		{"ResetKey", func(c call) error { return c.ResetKey(c.ctx, c.a, "p", "x") }, writers},

		// Units of a key are changed as its counts are.
		{"GrantKey", func(c call) error {
			return c.GrantKey(c.ctx, c.a, "p", "192.0.2.7", 1, time.UnixMicro(c.now()).Add(time.Hour))
		}, writers},
		{"RevokeKey", func(c call) error { return c.RevokeKey(c.ctx, c.a, "p", "x") }, writers},
		{"DebitKey", func(c call) error { return errOf(c.DebitKey(c.ctx, c.a, "p", "192.0.2.7", 1)) }, writers},

		// It writes what was refused elsewhere, and returns the refusal.
		{"Refuse", func(c call) error { return c.Refuse(c.ctx, c.a, "x", "x", "x") },
			[]verdict{denied, denied, denied, denied, denied, denied, denied, change, out, out}},

		{"Rollback", func(c call) error { return errOf(c.Rollback(c.ctx, c.a, "p", 1, 7)) }, writers},
		{"Undo", func(c call) error { return errOf(c.Undo(c.ctx, c.a, "p", 1)) }, writers},
		{"Compare", func(c call) error { return errOf(c.Compare(c.ctx, c.a, "p", 0, 1)) }, readers},
		{"PausePolicy", func(c call) error {
			return errOf(c.PausePolicy(c.ctx, c.a, "p", 7, policy.Shadow, time.Hour))
		}, writers},
		{"PauseOf", func(c call) error { return errOf(c.PauseOf(c.ctx, c.a, "p")) }, readers},
		{"CancelPause", func(c call) error { return c.CancelPause(c.ctx, c.a, "p") }, writers},

		// Webhooks are hidden from those who do not own all of their applications. A token to read
		// shows its owner's webhooks, and changes none.
		{"Webhooks", func(c call) error { return errOf(c.Webhooks(c.ctx, c.a)) }, everyone},
		{"Webhook", func(c call) error { return errOf(c.Webhook(c.ctx, c.a, c.hook.ID)) }, owners},
		{"CreateWebhook", func(c call) error {
			return errOf2(c.CreateWebhook(c.ctx, c.a, hookFor("http://127.0.0.1:1", "a")))
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},
		{"UpdateWebhook", func(c call) error {
			return c.UpdateWebhook(c.ctx, c.a, c.hook.ID, hookFor("http://127.0.0.1:1/other", "a"))
		}, keepers},
		{"EnableWebhook", func(c call) error { return c.EnableWebhook(c.ctx, c.a, c.hook.ID, false) }, keepers},
		{"RenewWebhookSecret", func(c call) error {
			return errOf(c.RenewWebhookSecret(c.ctx, c.a, c.hook.ID))
		}, keepers},
		{"TestWebhook", func(c call) error { return errOf(c.TestWebhook(c.ctx, c.a, c.hook.ID)) }, keepers},
		{"DeleteWebhook", func(c call) error {
			return c.DeleteWebhook(c.ctx, c.a, c.watch("http://127.0.0.1:1", "a").ID)
		}, keepers},

		// An import is denied as the creation of its policy would be.
		{"PlanImport", func(c call) error {
			return errOf(c.PlanImport(c.ctx, c.a, importOf(c.t, sample("new", "a"))))
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},
		// Who owns any application may send an import.
		{"AdmitImport", func(c call) error {
			done, err := c.AdmitImport(c.ctx, c.a, false)
			if err == nil {
				done()
			}
			return err
		}, []verdict{yes, yes, yes, yes, yes, denied, yes, change, out, out}},
		{"Import", func(c call) error {
			return errOf(c.Import(c.ctx, c.a, importOf(c.t, sample("new", "a"))))
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},

		// Users, applications and settings are for administrators who logged in themselves: their
		// token manages nothing.
		{"Audit", func(c call) error { return errOf(c.Audit(c.ctx, c.a, AuditQuery{})) }, managers},
		{"TokensOf", func(c call) error { return errOf(c.TokensOf(c.ctx, c.a, FirstUser)) }, managers},
		{"EndTokens", func(c call) error { return c.EndTokens(c.ctx, c.a, "spare") }, managers},
		{"Backup", func(c call) error {
			f, err := c.Backup(c.ctx, c.a, adminPassword, "")
			if err == nil {
				err = f.Close()
			}
			return err
		}, managers},
		// TestBackupByToken has the tokens that may.
		{"BackupByToken", func(c call) error { return errOf(c.BackupByToken(c.ctx, c.a)) },
			[]verdict{denied, denied, denied, denied, denied, denied, denied, change, out, out}},
		{"Users", func(c call) error { return errOf(c.Users(c.ctx, c.a)) }, managers},
		{"User", func(c call) error { return errOf(c.User(c.ctx, c.a, "spare")) }, managers},
		{"CreateUser", func(c call) error { return errOf(c.CreateUser(c.ctx, c.a, "x")) }, managers},
		{"ResetPassword", func(c call) error { return errOf(c.ResetPassword(c.ctx, c.a, "spare")) }, managers},
		{"DisableUser", func(c call) error { return c.DisableUser(c.ctx, c.a, "spare") }, managers},
		{"EnableUser", func(c call) error { return c.EnableUser(c.ctx, c.a, "spare") }, managers},
		{"Promote", func(c call) error { return c.Promote(c.ctx, c.a, c.a.User()) },
			[]verdict{yes, denied, denied, denied, denied, denied, denied, change, out, out}},
		{"Demote", func(c call) error { return c.Demote(c.ctx, c.a, "spare") }, managers},
		{"SetRole", func(c call) error { return c.SetRole(c.ctx, c.a, "spare", "a", Owner) }, managers},

		{"RemoveSecondFactor", func(c call) error { return c.RemoveSecondFactor(c.ctx, c.a, "spare") }, managers},

		// One's own account is for the person, not for a token.
		{"SecondFactor", func(c call) error { return errOf(c.SecondFactor(c.ctx, c.a)) }, persons},
		{"BeginSecondFactor", func(c call) error {
			return errOf(c.BeginSecondFactor(c.ctx, c.a, adminPassword))
		}, persons},
		{"SecondFactorSetup", func(c call) error {
			return found(errOf(c.SecondFactorSetup(c.ctx, c.a)))
		}, persons},
		{"ConfirmSecondFactor", func(c call) error {
			return found(errOf(c.ConfirmSecondFactor(c.ctx, c.a, "000000")))
		}, persons},
		{"RenewRecoveryCodes", func(c call) error {
			return found(errOf(c.RenewRecoveryCodes(c.ctx, c.a, adminPassword, "000000")))
		}, persons},
		{"DisableSecondFactor", func(c call) error {
			return found(c.DisableSecondFactor(c.ctx, c.a, adminPassword, "000000"))
		}, persons},

		{"CreateApp", func(c call) error { return c.CreateApp(c.ctx, c.a, "x", "") }, managers},
		{"DescribeApp", func(c call) error { return c.DescribeApp(c.ctx, c.a, "a", "x") }, managers},
		{"DeleteApp", func(c call) error { return c.DeleteApp(c.ctx, c.a, "c") }, managers},
		{"Settings", func(c call) error { return errOf(c.Settings(c.ctx, c.a)) }, managers},
		{"SaveSettings", func(c call) error {
			return c.SaveSettings(c.ctx, c.a, Settings{SessionIdle: time.Hour, SessionLife: 2 * time.Hour})
		}, managers},

		{"Sessions", func(c call) error { return errOf(c.Sessions(c.ctx, c.a)) }, persons},
		{"RevokeSession", func(c call) error {
			if err := c.RevokeSession(c.ctx, c.a, "x"); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, persons},
		{"Tokens", func(c call) error { return errOf(c.Tokens(c.ctx, c.a)) }, persons},
		{"TokenLife", func(c call) error { return errOf(c.TokenLife(c.ctx, c.a)) }, persons},

		{"CreateToken", func(c call) error {
			return errOf2(c.CreateToken(c.ctx, c.a, TokenDraft{Label: "x", Scope: Read, Life: time.Hour}))
		}, persons},
		{"RevokeToken", func(c call) error {
			if err := c.RevokeToken(c.ctx, c.a, "x"); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, persons},

		// What everyone may who is logged in, also with a password to change.
		{"Access", func(c call) error { return errOf(c.Access(c.ctx, c.a)) },
			[]verdict{yes, yes, yes, yes, yes, yes, yes, yes, out, out}},
		{"Logout", func(c call) error { return c.Logout(c.ctx, c.a) },
			[]verdict{yes, yes, yes, yes, yes, yes, yes, yes, yes, yes}},
		{"ChangePassword", func(c call) error {
			return errOf(c.ChangePassword(c.ctx, c.a, userPassword, "seven green canals"))
		}, []verdict{yes, yes, yes, yes, out, out, out, yes, yes, out}}, // with ErrCredentials for some
		{"ChangePasswordAndEndTokens", func(c call) error {
			return errOf(c.ChangePasswordAndEndTokens(c.ctx, c.a, userPassword, "seven green canals"))
		}, []verdict{yes, yes, yes, yes, out, out, out, yes, yes, out}},
	}
}

// found leaves out that something of one's own does not exist.
func found(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// cast returns the actors of the matrix, in the order of its columns.
func (w *world) cast() []Actor {
	w.t.Helper()
	ctx := w.t.Context()

	owner := w.person("owner", map[string]Role{"a": Owner})
	disabled := w.person("disabled", map[string]Role{"a": Owner})
	w.must(w.DisableUser(ctx, w.admin, "disabled"))

	// The newcomer has the role of an owner and a password that has to be changed first.
	oneTime := must(w.CreateUser(ctx, w.admin, "newcomer"))
	w.must(w.SetRole(ctx, w.admin, "newcomer", "a", Owner))

	newcomer := must(w.Login(ctx, "newcomer", oneTime, Meta{}))

	// On whom the administrator's rows act.
	w.person("spare", nil)

	return []Actor{
		w.admin, owner, w.person("viewer", map[string]Role{"a": Viewer, "b": Owner}),
		w.person("stranger", map[string]Role{"b": Owner}),
		w.token(owner, Write), w.token(owner, Read), w.token(w.admin, Write), w.actor(newcomer), disabled, {},
	}
}

// token returns an actor with a token of a.
func (w *world) token(a Actor, scope Scope, apps ...string) Actor {
	w.t.Helper()
	_, secret, err := w.CreateToken(w.t.Context(), a,
		TokenDraft{Label: "x", Scope: scope, Apps: apps, Life: 24 * time.Hour})
	w.must(err)
	actor := must(w.AuthenticateToken(w.t.Context(), secret, Meta{}))
	return actor
}

func TestMatrixOfPermissions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.hook = w.watch("http://127.0.0.1:1", "a")
		w.create(sample("p", "a"))
		cast := w.cast()
		for i := range columns {
			if i == 0 {
				continue // the administrator comes last, because its request is carried out
			}
			w.tryAll(t, columns[i], cast[i], i)
		}
		w.tryAll(t, columns[0], cast[0], 0)
	})
}

// tryAll calls every method as one actor, and checks that the audit log has each
// refusal.
func (w *world) tryAll(t *testing.T, name string, a Actor, column int) {
	t.Helper()

	refusals := w.refusals()
	for _, r := range matrix() {
		if r.want[column] == yes && r.method != "Promote" && column > 0 && column < 7 && changesMuch(r.method) {
			continue // has other tests
		}

		before := refusals
		got := verdictOf(r.call(call{w, t.Context(), a}))
		equal(t, fmt.Sprintf("%s by %s", r.method, name), got, r.want[column])

		// Actors from column 7 on get no further than their log-in, so no right is looked at.
		refusals = w.refusals()
		if noted := refusals - before; (got == denied || got == hidden) && column < 7 && noted != 1 {
			t.Errorf("%s by %s: %d refusals in the audit log, want 1", r.method, name, noted)
		}
	}
}

// changesMuch reports whether a method changes the answers of others.
func changesMuch(method string) bool {
	return slices.Contains([]string{"CreatePolicy", "UpdatePolicy", "SwitchPolicies", "DeletePolicy", "Import", "Undo",
		"UndoSwitch", "CancelPause", "ChangePassword", "ChangePasswordAndEndTokens", "Logout"}, method)
}

func (w *world) refusals() (n int) {
	w.must(w.db.View(w.t.Context(), countRefusals(&n)))
	return n
}

func TestMatrixHasEveryMethod(t *testing.T) {
	var want []string
	for service, i := reflect.TypeFor[*Service](), 0; i < service.NumMethod(); i++ {
		if name := service.Method(i).Name; !slices.Contains(noActor, name) {
			want = append(want, name)
		}
	}

	var have []string
	for _, r := range matrix() {
		have = append(have, r.method)
		equal(t, fmt.Sprintf("verdicts of %s", r.method), len(r.want), len(columns))
	}

	// The methods of a type are sorted.
	slices.Sort(have)
	equal(t, "the matrix has", have, want)
}

func TestPolicyOfSeveralAppsNeedsTheirCommonOwner(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a := w.person("a-owner", map[string]Role{"a": Owner, "c": Viewer})
		ab := w.person("ab-owner", map[string]Role{"a": Owner, "b": Owner})
		w.create(sample("shared", "a", "b"))
		w.create(sample("mine", "a"))

		if _, err := w.Policy(ctx, a, "shared"); err != nil {
			t.Errorf("the owner of one application does not see it: %v", err)
		}

		edit := func(actor Actor, name string, version int64, apps ...string) error {
			p := sample(name, apps...)
			p.Version, p.Priority = version, 9
			_, err := w.UpdatePolicy(ctx, actor, p)
			return err
		}

		// They may change only what is theirs before and after the change.
		wantErr(t, "an edit of a policy that is only partly theirs", edit(a, "shared", 1, "a", "b"), ErrDenied)
		wantErr(t, "taking the other application away", edit(a, "shared", 1, "a"), ErrDenied)
		wantErr(t, "adding an application that is not theirs", edit(a, "mine", 1, "a", "b"), ErrDenied)
		wantErr(t, "adding an application that they only view", edit(a, "mine", 1, "a", "c"), ErrDenied)
		wantErr(t, "adding an application that does not exist", edit(a, "mine", 1, "a", "x"), ErrDenied)
		wantErr(t, "a deletion", w.DeletePolicy(ctx, a, "shared", 1), ErrDenied)
		wantErr(t, "a creation", errOf(w.CreatePolicy(ctx, a, sample("other", "a", "b"))), ErrDenied)

		// Who owns both may leave it to one, and then it is the other's alone.
		w.must(edit(ab, "shared", 1, "a"))
		w.must(edit(a, "shared", 2, "a"[:1]))

		// An old version is judged by the applications that it listed.
		_, err := w.Rollback(ctx, a, "shared", 1, 2)
		wantErr(t, "a rollback to a version that was not theirs alone", err, ErrDenied)

		if p, err := w.Policy(ctx, w.admin, "mine"); err != nil || p.Version != 1 {
			t.Errorf("%+v %v", p, err)
		}
	})
}

func TestAccessIsLookedUpEachTime(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	w.create(sample("p", "a"))
	a := w.person("x", map[string]Role{"a": Owner})
	w.must(w.SetRole(ctx, w.admin, "x", "a", Viewer))
	wantErr(t, "a viewer", w.DeletePolicy(ctx, a, "p", 1), ErrDenied)
	w.must(w.SetRole(ctx, w.admin, "x", "a", NoRole))
	wantErr(t, "a stranger", errOf(w.Policy(ctx, a, "p")), ErrNotFound)
	w.must(w.DisableUser(ctx, w.admin, "x"))
	wantErr(t, "a disabled user", errOf(w.Policies(ctx, a, Query{})), ErrNotLoggedIn)
}
