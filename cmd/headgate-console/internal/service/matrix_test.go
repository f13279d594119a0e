package service

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
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

// row is a method and what each actor may do with it.
type row struct {
	method string
	call   func(ctx context.Context, w *world, a Actor) error
	want   []verdict
}

// noActor lists the methods that take no actor.
var noActor = []string{"Ledger", "Login", "LoginCode", "Authenticate", "AuthenticateToken", "AuthenticateByProxy",
	"LoginByProvider", "RefuseProvider", "Bootstrap", "Recover", "Outbox", "Calendar", "Alarm", "Full"}

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
		{"Policy", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Policy(ctx, a, "p")
			return err
		}, readers},
		{"History", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.History(ctx, a, "p", 0, 0)
			return err
		}, readers},
		{"Revision", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Revision(ctx, a, "p", 1)
			return err
		}, readers},
		{"SeenInShadow", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SeenInShadow(ctx, a, "p")
			return err
		}, readers},

		// A policy that is hidden is answered as one that does not exist, so it is refused to none.
		{"WouldRefuse", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.WouldRefuse(ctx, a, sample("p", "a"))
			return err
		}, everyone},
		{"FreeName", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.FreeName(ctx, a, "p")
			return err
		}, everyone},

		// Lists show each actor what is theirs, so they are refused to none.
		{"Policies", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Policies(ctx, a, Query{})
			return err
		}, everyone},
		{"List", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.List(ctx, a, Query{})
			return err
		}, everyone},

		// Changes of many policies need the right to each.
		{"PlanSwitch", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PlanSwitch(ctx, a, []PolicyVersion{{"p", 1}}, policy.Off)
			return err
		}, writers},
		{"SwitchPolicies", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SwitchPolicies(ctx, a, []PolicyVersion{{"p", 1}}, policy.Off)
			return err
		}, writers},
		{"UndoSwitch", func(ctx context.Context, w *world, a Actor) error {
			// An actor takes back what they have changed at an instant, and there is nothing.
			if err := w.UndoSwitch(ctx, a, time.Unix(0, 0)); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, everyone},
		{"SwitchedAt", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SwitchedAt(ctx, a, time.Unix(0, 0))
			return err
		}, everyone},

		{"PoliciesOf", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PoliciesOf(ctx, a, "")
			return err
		}, everyone},
		{"Reasons", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Reasons(ctx, a, nil)
			return err
		}, everyone},
		{"Export", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Export(ctx, a, YAML, "")
			return err
		}, everyone},
		{"Publishing", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Publishing(ctx, a)
			return err
		}, everyone},
		{"Unable", func(ctx context.Context, w *world, a Actor) error {
			_, _, err := w.Unable(ctx, a)
			return err
		}, everyone},
		{"TakeOver", func(ctx context.Context, w *world, a Actor) error {
			return w.TakeOver(ctx, a, "7.abc", "p is lost")
		}, managers},
		{"Deleted", func(ctx context.Context, w *world, a Actor) error {
			_, _, err := w.Deleted(ctx, a, 1, 0)
			return err
		}, everyone},

		// The traffic of an application is read like a policy of it.
		{"Traffic", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Traffic(ctx, a, TrafficQuery{App: "a"})
			return err
		}, readers},
		{"TrafficByPolicy", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.TrafficByPolicy(ctx, a, TrafficQuery{App: "a"})
			return err
		}, readers},
		{"TrafficCSV", func(ctx context.Context, w *world, a Actor) error {
			return w.TrafficCSV(ctx, a, TrafficQuery{App: "a"}, io.Discard)
		}, readers},
		{"TrafficByApp", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.TrafficByApp(ctx, a, TrafficQuery{})
			return err
		}, everyone},
		{"Overview", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Overview(ctx, a, TrafficQuery{App: "a"})
			return err
		}, readers},
		{"Markers", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Markers(ctx, a, TrafficQuery{App: "a"})
			return err
		}, readers},
		{"Instances", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Instances(ctx, a, "a")
			return err
		}, readers},
		{"Apps", func(ctx context.Context, w *world, a Actor) error { _, err := w.Apps(ctx, a); return err }, everyone},

		// A creation is denied to those who do not own the application: there is nothing to hide.
		{"CreatePolicy", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.CreatePolicy(ctx, a, sample("new", "a"))
			return err
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},

		{"UpdatePolicy", func(ctx context.Context, w *world, a Actor) error {
			p := sample("p", "a")
			p.Version, p.Priority = 1, 5
			_, err := w.UpdatePolicy(ctx, a, p)
			return err
		}, writers},
		{"DeletePolicy", func(ctx context.Context, w *world, a Actor) error {
			return w.DeletePolicy(ctx, a, "p", 1)
		}, writers},
		{"PolicyToEdit", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PolicyToEdit(ctx, a, "policy.update", "p")
			return err
		}, writers},

		// Keys of callers: looking is reading, and a ban, an exception or a limit of its own is a
		// change of the policy.
		{"Top", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Top(ctx, a, "a")
			return err
		}, readers},
		{"LookUpEach", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.LookUpEach(ctx, a, "x", 10, func(policy.Policy) bool { return true },
				func(policy.Policy) string { return "x" },
				func(context.Context, policy.Policy, string) error { return nil })
			return err
		}, everyone},

		{"ImposeBan", func(ctx context.Context, w *world, a Actor) error {
			return w.ImposeBan(ctx, a, "p", "x", time.Minute,
				func(context.Context, policy.Policy, string, time.Duration) error { return nil })
		}, writers},
		{"AllowKey", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.AllowKey(ctx, a, "p", "x", 7)
			return err
		}, writers},
		{"LimitKey", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.LimitKey(ctx, a, "p", "x", nil, 7)
			return err
		}, writers},
		{"Overrides", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Overrides(ctx, a, "p", OverridesQuery{})
			return err
		}, readers},
		{"SetOverride", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SetOverride(ctx, a, "p", OverrideChange{"x", "5/1m", ""})
			return err
		}, writers},
		{"PlanOverrides", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PlanOverrides(ctx, a, OverridesImport{Set: setOf("p x=5/1m")})
			return err
		}, aboutNames},
		{"ImportOverrides", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ImportOverrides(ctx, a, OverridesImport{Set: setOf("p x=5/1m")})
			return err
		}, aboutNames},
		{"ExportOverrides", func(ctx context.Context, w *world, a Actor) error {
			return w.ExportOverrides(ctx, a, "a", io.Discard)
		}, readers},
		{"ChangeOverrides", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ChangeOverrides(ctx, a, "p", []OverrideChange{{"x", "5/1m", ""}})
			return err
		}, writers},
		{"LiftBan", func(ctx context.Context, w *world, a Actor) error {
			return w.LiftBan(ctx, a, "p", "x", func(context.Context, policy.Policy, string) error { return nil })
		}, writers},

		{"KeyPolicy", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.KeyPolicy(ctx, a, "p", "x")
			return err
		}, readers},
		{"LookUp", func(ctx context.Context, w *world, a Actor) error {
			return w.LookUp(ctx, a, "p", "x", func(context.Context, policy.Policy, string) error { return nil })
		}, readers},
		{"AuditCSV", func(ctx context.Context, w *world, a Actor) error {
			return w.AuditCSV(ctx, a, AuditQuery{}, io.Discard)
		}, managers},
		{"ResetKey", func(ctx context.Context, w *world, a Actor) error {
			return w.ResetKey(ctx, a, "p", "x", func(context.Context, policy.Policy, string) error { return nil })
		}, writers},

		// Units of a key are changed as its counts are.
		{"GrantKey", func(ctx context.Context, w *world, a Actor) error {
			return w.GrantKey(ctx, a, "p", "192.0.2.7", 1, time.UnixMicro(w.now()).Add(time.Hour),
				func(context.Context, policy.Policy, string) (core.Decision, error) {
					return core.Decision{Allowed: true}, nil
				})
		}, writers},
		{"RevokeKey", func(ctx context.Context, w *world, a Actor) error {
			return w.RevokeKey(ctx, a, "p", "x", func(context.Context, policy.Policy, string) error { return nil })
		}, writers},
		{"DebitKey", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.DebitKey(ctx, a, "p", "192.0.2.7", 1,
				func(context.Context, policy.Policy, string) (core.Decision, error) {
					return core.Decision{Taken: 1}, nil
				})
			return err
		}, writers},

		// It writes what was refused elsewhere, and returns the refusal.
		{"Refuse", func(ctx context.Context, w *world, a Actor) error { return w.Refuse(ctx, a, "x", "x", "x") },
			[]verdict{denied, denied, denied, denied, denied, denied, denied, change, out, out}},

		{"Rollback", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Rollback(ctx, a, "p", 1, 7)
			return err
		}, writers},
		{"Undo", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Undo(ctx, a, "p", 1)
			return err
		}, writers},
		{"Compare", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Compare(ctx, a, "p", 0, 1)
			return err
		}, readers},
		{"PausePolicy", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PausePolicy(ctx, a, "p", 7, policy.Shadow, time.Hour)
			return err
		}, writers},
		{"PauseOf", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PauseOf(ctx, a, "p")
			return err
		}, readers},
		{"CancelPause", func(ctx context.Context, w *world, a Actor) error {
			return w.CancelPause(ctx, a, "p")
		}, writers},

		// Webhooks are hidden from those who do not own all of their applications. A token to read
		// shows its owner's webhooks, and changes none.
		{"Webhooks", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Webhooks(ctx, a)
			return err
		}, everyone},
		{"Webhook", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Webhook(ctx, a, w.hook.ID)
			return err
		}, owners},
		{"CreateWebhook", func(ctx context.Context, w *world, a Actor) error {
			_, _, err := w.CreateWebhook(ctx, a, hookFor("http://127.0.0.1:1", "a"))
			return err
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},
		{"UpdateWebhook", func(ctx context.Context, w *world, a Actor) error {
			return w.UpdateWebhook(ctx, a, w.hook.ID, hookFor("http://127.0.0.1:1/other", "a"))
		}, keepers},
		{"EnableWebhook", func(ctx context.Context, w *world, a Actor) error {
			return w.EnableWebhook(ctx, a, w.hook.ID, false)
		}, keepers},
		{"RenewWebhookSecret", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.RenewWebhookSecret(ctx, a, w.hook.ID)
			return err
		}, keepers},
		{"TestWebhook", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.TestWebhook(ctx, a, w.hook.ID)
			return err
		}, keepers},
		{"DeleteWebhook", func(ctx context.Context, w *world, a Actor) error {
			return w.DeleteWebhook(ctx, a, w.watch("http://127.0.0.1:1", "a").ID)
		}, keepers},

		// An import is denied as the creation of its policy would be.
		{"PlanImport", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.PlanImport(ctx, a, importOf(w.t, sample("new", "a")))
			return err
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},
		// Who owns any application may send an import.
		{"AdmitImport", func(ctx context.Context, w *world, a Actor) error {
			done, err := w.AdmitImport(ctx, a, false)
			if err == nil {
				done()
			}
			return err
		}, []verdict{yes, yes, yes, yes, yes, denied, yes, change, out, out}},
		{"Import", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Import(ctx, a, importOf(w.t, sample("new", "a")))
			return err
		}, []verdict{yes, yes, denied, denied, yes, denied, yes, change, out, out}},

		// Users, applications and settings are for administrators who logged in themselves: their
		// token manages nothing.
		{"Audit", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Audit(ctx, a, AuditQuery{})
			return err
		}, managers},
		{"TokensOf", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.TokensOf(ctx, a, FirstUser)
			return err
		}, managers},
		{"EndTokens", func(ctx context.Context, w *world, a Actor) error {
			return w.EndTokens(ctx, a, "spare")
		}, managers},
		{"Backup", func(ctx context.Context, w *world, a Actor) error {
			f, err := w.Backup(ctx, a, adminPassword, "")
			if err == nil {
				err = f.Close()
			}
			return err
		}, managers},
		// TestBackupByToken has the tokens that may.
		{"BackupByToken", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.BackupByToken(ctx, a)
			return err
		}, []verdict{denied, denied, denied, denied, denied, denied, denied, change, out, out}},
		{"Users", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Users(ctx, a)
			return err
		}, managers},
		{"User", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.User(ctx, a, "spare")
			return err
		}, managers},
		{"CreateUser", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.CreateUser(ctx, a, "x")
			return err
		}, managers},
		{"ResetPassword", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ResetPassword(ctx, a, "spare")
			return err
		}, managers},
		{"DisableUser", func(ctx context.Context, w *world, a Actor) error {
			return w.DisableUser(ctx, a, "spare")
		}, managers},
		{"EnableUser", func(ctx context.Context, w *world, a Actor) error {
			return w.EnableUser(ctx, a, "spare")
		}, managers},
		{"Promote", func(ctx context.Context, w *world, a Actor) error {
			return w.Promote(ctx, a, a.User())
		}, []verdict{yes, denied, denied, denied, denied, denied, denied, change, out, out}},
		{"Demote", func(ctx context.Context, w *world, a Actor) error { return w.Demote(ctx, a, "spare") }, managers},
		{"SetRole", func(ctx context.Context, w *world, a Actor) error {
			return w.SetRole(ctx, a, "spare", "a", Owner)
		}, managers},

		{"RemoveSecondFactor", func(ctx context.Context, w *world, a Actor) error {
			return w.RemoveSecondFactor(ctx, a, "spare")
		}, managers},

		// One's own account is for the person, not for a token.
		{"SecondFactor", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SecondFactor(ctx, a)
			return err
		}, persons},
		{"BeginSecondFactor", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.BeginSecondFactor(ctx, a, adminPassword)
			return err
		}, persons},
		{"SecondFactorSetup", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.SecondFactorSetup(ctx, a)
			return found(err)
		}, persons},
		{"ConfirmSecondFactor", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ConfirmSecondFactor(ctx, a, "000000")
			return found(err)
		}, persons},
		{"RenewRecoveryCodes", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.RenewRecoveryCodes(ctx, a, adminPassword, "000000")
			return found(err)
		}, persons},
		{"DisableSecondFactor", func(ctx context.Context, w *world, a Actor) error {
			return found(w.DisableSecondFactor(ctx, a, adminPassword, "000000"))
		}, persons},

		{"CreateApp", func(ctx context.Context, w *world, a Actor) error {
			return w.CreateApp(ctx, a, "x", "")
		}, managers},
		{"DescribeApp", func(ctx context.Context, w *world, a Actor) error {
			return w.DescribeApp(ctx, a, "a", "x")
		}, managers},
		{"DeleteApp", func(ctx context.Context, w *world, a Actor) error { return w.DeleteApp(ctx, a, "c") }, managers},
		{"Settings", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Settings(ctx, a)
			return err
		}, managers},
		{"SaveSettings", func(ctx context.Context, w *world, a Actor) error {
			return w.SaveSettings(ctx, a, Settings{SessionIdle: time.Hour, SessionLife: 2 * time.Hour})
		}, managers},

		{"Sessions", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Sessions(ctx, a)
			return err
		}, persons},
		{"RevokeSession", func(ctx context.Context, w *world, a Actor) error {
			if err := w.RevokeSession(ctx, a, "x"); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, persons},
		{"Tokens", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.Tokens(ctx, a)
			return err
		}, persons},
		{"TokenLife", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.TokenLife(ctx, a)
			return err
		}, persons},

		{"CreateToken", func(ctx context.Context, w *world, a Actor) error {
			_, _, err := w.CreateToken(ctx, a, TokenDraft{Label: "x", Scope: Read, Life: time.Hour})
			return err
		}, persons},
		{"RevokeToken", func(ctx context.Context, w *world, a Actor) error {
			if err := w.RevokeToken(ctx, a, "x"); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		}, persons},

		// What everyone may who is logged in, also with a password to change.
		{"Access", func(ctx context.Context, w *world, a Actor) error { _, err := w.Access(ctx, a); return err },
			[]verdict{yes, yes, yes, yes, yes, yes, yes, yes, out, out}},
		{"Logout", func(ctx context.Context, w *world, a Actor) error { return w.Logout(ctx, a) },
			[]verdict{yes, yes, yes, yes, yes, yes, yes, yes, yes, yes}},
		{"ChangePassword", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ChangePassword(ctx, a, userPassword, "seven green canals")
			return err
		}, []verdict{yes, yes, yes, yes, out, out, out, yes, yes, out}}, // with ErrCredentials for some
		{"ChangePasswordAndEndTokens", func(ctx context.Context, w *world, a Actor) error {
			_, err := w.ChangePasswordAndEndTokens(ctx, a, userPassword, "seven green canals")
			return err
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
	oneTime, err := w.CreateUser(ctx, w.admin, "newcomer")
	w.must(err)
	w.must(w.SetRole(ctx, w.admin, "newcomer", "a", Owner))

	newcomer, err := w.Login(ctx, "newcomer", oneTime, Meta{})
	w.must(err)

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
	actor, err := w.AuthenticateToken(w.t.Context(), secret, Meta{})
	w.must(err)
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
		got := verdictOf(r.call(t.Context(), w, a))
		if got != r.want[column] {
			t.Errorf("%s by %s: %s, want %s", r.method, name, got, r.want[column])
		}

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
		if len(r.want) != len(columns) {
			t.Errorf("%s has %d verdicts, want %d", r.method, len(r.want), len(columns))
		}
	}

	// The methods of a type are sorted.
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("the matrix has %v, want %v", have, want)
	}
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
		_, err := w.CreatePolicy(ctx, a, sample("other", "a", "b"))
		wantErr(t, "a creation", err, ErrDenied)

		// Who owns both may leave it to one, and then it is the other's alone.
		w.must(edit(ab, "shared", 1, "a"))
		w.must(edit(a, "shared", 2, "a"[:1]))

		// An old version is judged by the applications that it listed.
		_, err = w.Rollback(ctx, a, "shared", 1, 2)
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
	_, err := w.Policy(ctx, a, "p")
	wantErr(t, "a stranger", err, ErrNotFound)
	w.must(w.DisableUser(ctx, w.admin, "x"))
	_, err = w.Policies(ctx, a, Query{})
	wantErr(t, "a disabled user", err, ErrNotLoggedIn)
}
