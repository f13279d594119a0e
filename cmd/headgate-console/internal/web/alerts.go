package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
)

// alerts is the page of all webhooks.
type alerts struct {
	Hooks  []hook
	CanAdd bool
	Redis  bool // there is one, so that conditions are checked
}

// hook is a webhook.
type hook struct {
	service.Webhook
	Tested *delivery // the test message that the user has just sent, or nil
}

// delivery is a message to a webhook.
type delivery struct {
	service.Delivery
	Held bool // until an earlier message about the same was sent
}

// Last returns the last message, or nil.
func (h hook) Last() *delivery {
	if len(h.Webhook.Deliveries) == 0 {
		return nil
	}
	return &delivery{Delivery: h.Webhook.Deliveries[0]}
}

// Messages returns the last messages, the newest first.
func (h hook) Messages() (list []delivery) {
	waits := map[[2]string]bool{}
	for _, d := range slices.Backward(h.Webhook.Deliveries) {
		about := [2]string{string(d.Kind), d.App}
		waiting := !d.NextAt.IsZero()
		list = append(list, delivery{d, waiting && waits[about]})
		waits[about] = waits[about] || waiting
	}
	slices.Reverse(list)
	return list
}

// First returns the first alerts that stand, so many at most.
func (h hook) First(n int) []service.Alert { return h.Standing[:min(n, len(h.Standing))] }

// Further returns how many alerts stand beyond the first.
func (h hook) Further(n int) int { return max(0, len(h.Standing)-n) }

// Place returns the scheme and the host of the URL. The rest may be a secret.
func (h hook) Place() string { return webhook.Place(h.URL) }

// Repeats returns how often an alert is reported again, or "" for never.
func (h hook) Repeats() string {
	if h.RepeatAfter == 0 {
		return ""
	}
	return short(h.RepeatAfter)
}

// Watches returns what is reported to the webhook, in words.
func (h hook) Watches() (list []string) {
	for _, k := range service.AlertKinds() {
		for _, c := range h.Conditions {
			if c.Kind == k.Kind {
				list = append(list, k.Words+limitsOf(c, k))
			}
		}
	}
	return list
}

// limitsOf returns the numbers of a condition in words.
func limitsOf(c service.Condition, k service.KindOfAlert) string {
	var parts []string
	if k.Share {
		parts = append(parts, "more than "+strconv.Itoa(c.Over)+" %")
	}
	if k.Counts {
		parts = append(parts, "of at least "+digits(c.AtLeast), "in "+minutesWords(c.Minutes))
	} else if c.Minutes > 0 {
		parts = append(parts, "for "+minutesWords(c.Minutes))
	}

	switch c.Policy {
	case "":
	case service.AnyPolicy:
		parts = append(parts, "by any policy")
	default:
		parts = append(parts, "by the policy "+c.Policy)
	}

	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, " ")
}

func minutesWords(n int) string {
	if n == 1 {
		return "1 minute"
	}
	return strconv.Itoa(n) + " minutes"
}

// What returns what a message says.
func (d delivery) What() string {
	switch d.Event {
	case service.EventBegun:
		return "An alert began"
	case service.EventStands:
		return "An alert goes on"
	case service.EventEnded:
		return "An alert ended"
	}
	return "Test"
}

// About returns the condition of a message in words, or "".
func (d delivery) About() string { return kindWords(d.Kind) }

func kindWords(kind service.AlertKind) string {
	for _, k := range service.AlertKinds() {
		if k.Kind == kind {
			return k.Words
		}
	}
	return ""
}

// Class returns the class of the state of a message.
func (d delivery) Class() string {
	switch d.State {
	case "done":
		return "enforce"
	case "failed":
		return "wrong"
	}
	return "shadow"
}

// Result returns what became of a message.
func (d delivery) Result() string {
	switch d.State {
	case "done":
		return "arrived"
	case "failed":
		return "failed"
	}
	return "waiting"
}

func hookPath(id string) string { return "/alerts/" + url.PathEscape(id) }

func alertsPage(r *request) error {
	hooks, err := r.Service.Webhooks(r.req.Context(), r.actor)
	if err != nil {
		return err
	}

	apps, err := r.ownApps()
	if err != nil {
		return err
	}

	page := alerts{CanAdd: len(apps) > 0 || r.access.CanManage(), Redis: r.Fleet != nil}
	for _, h := range hooks {
		page.Hooks = append(page.Hooks, hook{Webhook: h})
	}
	return r.show(http.StatusOK, "alerts", "Alerts", page)
}

func hookPage(r *request) error {
	w, err := r.Service.Webhook(r.req.Context(), r.actor, r.req.PathValue("webhook"))
	if err != nil {
		return err
	}

	h := hook{Webhook: w}

	// The address alone proves nothing: the newest message may be an alert that came after the
	// test.
	if last := h.Last(); r.query("tested") != "" && last != nil && last.Event == service.EventTest {
		h.Tested = last
	}

	return r.show(http.StatusOK, "alert", w.Name, h)
}

// hookForm is the form of a webhook.
type hookForm struct {
	New       bool
	Action    string
	Back      string
	Name, URL string
	All       bool
	CanAll    bool
	Repeat    string
	Apps      []appChoice
	Kinds     []kindChoice
	Mistakes  mistakes
}

// kindChoice is a condition in the form.
type kindChoice struct {
	service.KindOfAlert
	Help                           string
	Checked                        bool
	Over, AtLeast, Minutes, Policy string
	Mistakes                       mistakes
}

// Field returns the name of a field of the condition.
func (k kindChoice) Field(name string) string { return string(k.Kind) + "_" + name }

// HasPolicy reports whether the condition may name a policy.
func (k kindChoice) HasPolicy() bool { return k.KindOfAlert.Policy }

// numberField is a field of a condition.
type numberField struct {
	Field, Label, Value string
	Mistakes            mistakes
}

// Number returns a field of the condition.
func (k kindChoice) Number(name, label, value string) numberField {
	return numberField{k.Field(name), label, value, k.Mistakes}
}

// MinutesLabel says what the minutes of the condition are.
func (k kindChoice) MinutesLabel() string {
	if k.Counts {
		return "In the last minutes"
	}
	return "For longer than, in minutes"
}

// kindHelp explains each kind of condition.
var kindHelp = map[service.AlertKind]string{
	service.AlertRefused: "The share of the requests that are refused, in whole minutes. " +
		"Shadow policies refuse none.",
	service.AlertFailedOpen: "Neither Redis nor a fallback decided, or a function of the program failed, " +
		"and the policy lets requests pass then.",
	service.AlertBanned: "The console sees the refusals, and not the keys.",
	service.AlertNear:   "Of policies that say so. A key is named once an hour, as the policy counts it.",
	service.AlertBypassed: "It counts in its own memory, or it passes or refuses all requests, " +
		"as Redis does not answer it.",
	service.AlertBehind: "It runs an older version of the policies, or does not accept the newest.",
	service.AlertLost: "An instance ended, was killed or has lost Redis. It cannot be told which. " +
		"After an hour the smaller number is what is expected.",
	service.AlertRedis: "Nothing is known of the instances then. This concerns all applications.",
	service.AlertFull: "Of the limit maxmemory, where Redis refuses writes at it. " +
		"This concerns all applications.",
}

// showHookForm answers with the form of a webhook.
func (r *request) showHookForm(
	status int, id string, d service.WebhookDraft, repeat string, fields map[string]string, m mistakes,
) error {
	own, err := r.ownApps()
	if err != nil {
		return err
	}
	if len(own) == 0 && !r.access.CanManage() {
		return r.Service.Refuse(r.req.Context(), r.actor, "webhook.create", "webhooks",
			"it takes the owner of an application")
	}

	f := hookForm{
		New: id == "", Action: "/alerts", Back: "/alerts", Name: d.Name, URL: d.URL, All: d.All,
		CanAll: r.access.CanManage(), Repeat: repeat, Mistakes: m,
	}

	// A webhook without an id does not exist yet.
	title := "New webhook"
	if !f.New {
		f.Back, title = hookPath(id), "Edit "+d.Name
		f.Action = f.Back + "/edit"
	}

	apps, err := r.Service.Apps(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	f.Apps = tick(apps, d.Apps)
	for _, k := range service.AlertKinds() {
		// A condition that is not in the draft is shown with its usual numbers, unticked.
		choice := kindChoice{KindOfAlert: k, Help: kindHelp[k.Kind], Mistakes: m}
		c := k.Default
		for _, given := range d.Conditions {
			if given.Kind == k.Kind {
				c, choice.Checked = given, true
			}
		}

		choice.Over, choice.AtLeast = strconv.Itoa(c.Over), strconv.FormatInt(c.AtLeast, 10)
		choice.Minutes, choice.Policy = strconv.Itoa(c.Minutes), c.Policy

		// What was typed is shown again as it was, even if it is no number.
		shown := map[string]*string{
			"over": &choice.Over, "at_least": &choice.AtLeast, "minutes": &choice.Minutes, "policy": &choice.Policy,
		}
		for name, field := range shown {
			if text, sent := fields[choice.Field(name)]; sent {
				*field = text
			}
		}

		f.Kinds = append(f.Kinds, choice)
	}

	return r.show(status, "alertform", title, f)
}

func newHookPage(r *request) error {
	d := service.WebhookDraft{Conditions: []service.Condition{}}
	for _, k := range service.AlertKinds() {
		if k.Kind == service.AlertRefused || k.Kind == service.AlertBypassed || k.Kind == service.AlertBehind {
			d.Conditions = append(d.Conditions, k.Default)
		}
	}
	return r.showHookForm(http.StatusOK, "", d, short(service.DefaultRepeat), nil, nil)
}

func editHookPage(r *request) error {
	w, err := r.Service.Webhook(r.req.Context(), r.actor, r.req.PathValue("webhook"))
	if err != nil {
		return err
	}
	return r.showHookForm(http.StatusOK, w.ID, w.WebhookDraft, short(w.RepeatAfter), nil, nil)
}

// hookDraft reads the form of a webhook. fields are the texts of the conditions.
func (r *request) hookDraft() (d service.WebhookDraft, repeat string, fields map[string]string, m mistakes) {
	m, fields = mistakes{}, map[string]string{}
	repeat = strings.TrimSpace(r.field("repeat"))
	d = service.WebhookDraft{
		Name: r.field("name"), URL: strings.TrimSpace(r.field("url")), Apps: r.req.PostForm["apps"],
		All: r.field("all") == "yes", Enabled: true,
	}

	// A webhook for all applications is for those that are added later, too, so it lists none.
	if d.All {
		d.Apps = nil
	}

	var err error
	if d.RepeatAfter, err = time.ParseDuration(repeat); err != nil {
		m.add("repeat", "it is not a time such as 30m or 4h, or 0 for never")
	}
	for _, k := range service.AlertKinds() {
		c := service.Condition{Kind: k.Kind}
		checked := slices.Contains(r.req.PostForm["kinds"], string(k.Kind))

		// Every text is kept for the form. Only those of a ticked condition that has the number are
		// read, and may be wrong.
		read := func(name string, there bool) (n int) {
			field := string(k.Kind) + "_" + name
			fields[field] = r.field(field)
			if !there || !checked {
				return 0
			}
			if n, err = strconv.Atoi(strings.TrimSpace(fields[field])); err != nil {
				m.add(field, "it is not a whole number")
			}
			return n
		}

		c.Over, c.AtLeast = read("over", k.Share), int64(read("at_least", k.Counts))
		c.Minutes = read("minutes", !k.Keys)
		if k.Policy {
			field := string(k.Kind) + "_policy"
			fields[field] = r.field(field)
			c.Policy = strings.TrimSpace(fields[field])
		}

		if checked {
			d.Conditions = append(d.Conditions, c)
		}
	}

	return d, repeat, fields, m
}

// hookMistakes returns the mistakes that the service found, by the fields of the form.
func hookMistakes(err error) mistakes {
	found := mistakesOf(err)
	if found == nil {
		return nil
	}

	m := mistakes{}
	for field, texts := range found {
		switch field {
		case "conditions":
			field = "kinds"
		case "repeat_after":
			field = "repeat"
		}

		// The service names a number within a condition by a dot, and the form by an underscore.
		if inner, ok := strings.CutPrefix(field, "conditions."); ok {
			kind, name, _ := strings.Cut(inner, ".")
			field = kind + "_" + name
		}

		m[field] = append(m[field], texts...)
	}

	return m
}

func createHook(r *request) error {
	d, repeat, fields, m := r.hookDraft()
	var w service.Webhook
	var secret string

	err := r.tryHook(d, m, func() (err error) {
		w, secret, err = r.Service.CreateWebhook(r.req.Context(), r.actor, d)
		return err
	})
	if err != nil {
		return err
	}

	if len(m) > 0 {
		return r.showHookForm(http.StatusUnprocessableEntity, "", d, repeat, fields, m)
	}
	return r.show(http.StatusOK, "once", "A new webhook", once{Hook: w.Name, Secret: secret, Back: hookPath(w.ID)})
}

func updateHook(r *request) error {
	id := r.req.PathValue("webhook")
	was, err := r.Service.Webhook(r.req.Context(), r.actor, id)
	if err != nil {
		return err
	}

	// The form does not turn a webhook on or off, so an edit keeps what is.
	d, repeat, fields, m := r.hookDraft()
	d.Enabled = was.Enabled

	err = r.tryHook(d, m, func() error {
		_, err := r.Service.UpdateWebhook(r.req.Context(), r.actor, id, d)
		return err
	})
	if err != nil {
		return err
	}

	if len(m) > 0 {
		return r.showHookForm(http.StatusUnprocessableEntity, id, d, repeat, fields, m)
	}
	return r.seeOther(hookPath(id), "hook")
}

// tryHook saves a webhook unless its form has mistakes, and adds those that the service finds. It
// is asked in any case, so that all mistakes are shown at once.
func (r *request) tryHook(d service.WebhookDraft, m mistakes, save func() error) error {
	if len(m) > 0 {
		save = func() error { return r.Service.CheckWebhook(r.req.Context(), r.actor, d) }
	}

	err := save()
	found := hookMistakes(err)
	for field, texts := range found {
		// A field that could not be read was checked with a zero, and its own mistake says more.
		if m[field] == nil {
			m[field] = texts
		}
	}

	if found != nil {
		return nil
	}
	return err
}

// switchHook turns a webhook on or off.
func switchHook(r *request) error {
	id, do := r.req.PathValue("webhook"), r.field("do")
	if do != "on" && do != "off" {
		return errBadForm
	}
	if err := r.Service.EnableWebhook(r.req.Context(), r.actor, id, do == "on"); err != nil {
		return err
	}
	return r.seeOther(hookPath(id), "hook"+do)
}

func renewHook(r *request) error {
	id := r.req.PathValue("webhook")
	w, err := r.Service.Webhook(r.req.Context(), r.actor, id)
	if err != nil {
		return err
	}

	if !r.confirmed() {
		return r.confirm(confirmation{
			Title: "Make a new secret for the webhook " + w.Name + "?",
			Consequences: []string{"The receiver needs the new secret within a day. " +
				"Until then messages are signed with both."},
			Action: hookPath(id) + "/secret", Button: "Make a new secret", Back: hookPath(id),
		})
	}

	secret, err := r.Service.RenewWebhookSecret(r.req.Context(), r.actor, id)
	if err != nil {
		return err
	}
	return r.show(http.StatusOK, "once", "A new secret", once{Hook: w.Name, Secret: secret, Back: hookPath(id)})
}

// testHook sends a test message. The page of the webhook says what became of it.
func testHook(r *request) error {
	id := r.req.PathValue("webhook")
	if _, err := r.Service.TestWebhook(r.req.Context(), r.actor, id); err != nil {
		return err
	}
	return r.seeOther(hookPath(id)+"?tested=yes", "")
}

func deleteHook(r *request) error {
	id := r.req.PathValue("webhook")
	if !r.confirmed() {
		w, err := r.Service.Webhook(r.req.Context(), r.actor, id)
		if err != nil {
			return err
		}
		return r.confirm(confirmation{
			Title: "Delete the webhook " + w.Name + "?",
			Consequences: []string{"It is told no alerts any more, and messages that wait are not sent. " +
				"Its messages and its secret cannot be restored."},
			Action: hookPath(id) + "/delete", Button: "Delete the webhook", Danger: true, Back: hookPath(id),
		})
	}

	if err := r.Service.DeleteWebhook(r.req.Context(), r.actor, id); err != nil {
		return err
	}
	return r.seeOther("/alerts", "hookdeleted")
}
