package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/internal/textform"
)

// newHook is what the address names to open the form of a new webhook.
const newHook = "new"

// alerts is the page of all webhooks, of which one may be open.
type alerts struct {
	Hooks  []hook
	CanAdd bool
	CanAll bool // webhooks for all applications
	Redis  bool // there is one, so that conditions are checked

	Open   string // the id of the webhook that is open, newHook, or ""
	Hook   hook   // the one that is open
	Tested bool   // its last message is the test that the user has just sent
	Secret string // its secret, only just after that was made

	// The form of the one that is open.
	url.Values
	Apps     []appChoice
	Kinds    []kindChoice
	Mistakes mistakes
}

// hook is a webhook.
type hook struct{ service.Webhook }

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

// What returns what a message says.
func (d delivery) What() string { return vocabulary.Events[d.Event] }

// About returns the condition of a message in words, or "".
func (d delivery) About() string {
	for _, k := range service.AlertKinds() {
		if k.Default.Kind == d.Kind {
			return k.Words
		}
	}
	return ""
}

// kindChoice is a condition in the form.
type kindChoice struct {
	service.KindOfAlert
	Kind    service.AlertKind
	Help    string
	Checked bool

	values   url.Values
	mistakes mistakes
}

// kindField returns the name of a field of a condition, as the service has it.
func kindField(kind service.AlertKind, name string) string {
	return "conditions." + string(kind) + "." + name
}

// textField is a field of a condition.
type textField struct {
	Field, Label, Value, Help string
	Mistakes                  mistakes
}

// Text returns a field of the condition.
func (k kindChoice) Text(name, label, help string) textField {
	field := kindField(k.Kind, name)
	return textField{field, label, k.values.Get(field), help, k.mistakes}
}

func hookPath(id string) string { return "/alerts?webhook=" + url.QueryEscape(id) }

func alertsPage(r *request) error {
	return r.showAlerts(alerts{Open: r.query("webhook"), Tested: r.query("tested") != ""})
}

// showAlerts answers with the page. A form without values has those of the webhook that is open.
func (r *request) showAlerts(p alerts) error {
	hooks, err := r.Service.Webhooks(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	for _, h := range hooks {
		p.Hooks = append(p.Hooks, hook{h})
	}

	p.CanAll, p.Redis = r.access.CanManage(), r.Fleet != nil
	p.CanAdd = len(r.ownApps()) > 0 || p.CanAll

	if p.Open != "" {
		if err := r.open(&p); err != nil {
			return err
		}
	}
	return r.show(statusOf(p.Mistakes), "alerts", "Alerts", p)
}

// open adds the webhook that is open, and its form.
func (r *request) open(p *alerts) error {
	draft := service.WebhookDraft{RepeatAfter: service.DefaultRepeat}
	for _, k := range service.AlertKinds() {
		if !k.Common {
			draft.Conditions = append(draft.Conditions, k.Default)
		}
	}

	if p.Open != newHook {
		w, err := r.Service.Webhook(r.req.Context(), r.actor, p.Open)
		if err != nil {
			return err
		}

		// The address alone proves nothing: the newest message may be an alert that came after the
		// test.
		p.Hook, draft = hook{w}, w.WebhookDraft
		last := p.Hook.Last()
		p.Tested = p.Tested && last != nil && last.Event == service.EventTest
	} else if !p.CanAdd {
		return r.Service.Refuse(r.req.Context(), r.actor, "webhook.create", "webhooks",
			"it takes the owner of an application")
	}

	if p.Values == nil {
		p.Values = hookValues(draft)
	}

	p.Apps = r.tick(p.Values["apps"])
	for _, k := range service.AlertKinds() {
		kind := k.Default.Kind
		p.Kinds = append(p.Kinds, kindChoice{
			KindOfAlert: k, Kind: kind, Help: vocabulary.Conditions[kind], values: p.Values, mistakes: p.Mistakes,
			Checked: slices.Contains(p.Values["conditions"], string(kind)),
		})
	}
	return nil
}

// hookValues returns the form of a draft. A condition that is not in it has its usual numbers.
func hookValues(d service.WebhookDraft) url.Values {
	v := url.Values{"name": {d.Name}, "url": {d.URL}, "apps": d.Apps}
	v.Set("repeat_after", textform.Duration(d.RepeatAfter))
	if d.All {
		v.Set("all", "yes")
	}

	for _, k := range service.AlertKinds() {
		c := k.Default
		for _, given := range d.Conditions {
			if given.Kind == c.Kind {
				c = given
				v.Add("conditions", string(c.Kind))
			}
		}
		v.Set(kindField(c.Kind, "over"), strconv.Itoa(c.Over))
		v.Set(kindField(c.Kind, "count"), strconv.FormatInt(c.Count, 10))
		v.Set(kindField(c.Kind, "minutes"), strconv.Itoa(c.Minutes))
		v.Set(kindField(c.Kind, "policy"), c.Policy)
	}
	return v
}

// hookDraft reads the form. What is no number becomes one that the service refuses.
func hookDraft(v url.Values) service.WebhookDraft {
	d := service.WebhookDraft{
		Name: v.Get("name"), URL: strings.TrimSpace(v.Get("url")), Apps: v["apps"], All: v.Get("all") == "yes",
		Enabled: true,
	}

	// A webhook for all applications is for those that are added later, too, so it lists none.
	if d.All {
		d.Apps = nil
	}

	var err error
	if d.RepeatAfter, err = time.ParseDuration(strings.TrimSpace(v.Get("repeat_after"))); err != nil {
		d.RepeatAfter = -time.Second
	}

	for _, k := range service.AlertKinds() {
		kind := k.Default.Kind
		number := func(name string) int {
			n, err := strconv.Atoi(strings.TrimSpace(v.Get(kindField(kind, name))))
			if err != nil {
				return -1
			}
			return n
		}

		if !slices.Contains(v["conditions"], string(kind)) {
			continue
		}
		c := service.Condition{Kind: kind, Minutes: number("minutes")}
		if k.Counts {
			c.Over, c.Count = number("over"), int64(number("count"))
			c.Policy = strings.TrimSpace(v.Get(kindField(kind, "policy")))
		}
		d.Conditions = append(d.Conditions, c)
	}
	return d
}

// afterHook answers a change of a webhook. Its mistakes are shown in the form.
func (r *request) afterHook(id string, values url.Values, err error, then func() error) error {
	again := func(m mistakes) error { return r.showAlerts(alerts{Open: id, Values: values, Mistakes: m}) }
	return after(err, again, then)
}

func createHook(r *request) error {
	w, secret, err := r.Service.CreateWebhook(r.req.Context(), r.actor, hookDraft(r.req.PostForm))
	return r.afterHook(newHook, r.req.PostForm, err, func() error {
		return r.showAlerts(alerts{Open: w.ID, Secret: secret})
	})
}

func updateHook(r *request) error {
	id := r.req.PathValue("webhook")
	was, err := r.Service.Webhook(r.req.Context(), r.actor, id)
	if err != nil {
		return err
	}

	// The form does not turn a webhook on or off, so an edit keeps what is.
	d := hookDraft(r.req.PostForm)
	d.Enabled = was.Enabled
	err = r.Service.UpdateWebhook(r.req.Context(), r.actor, id, d)
	return r.afterHook(id, r.req.PostForm, err, r.to(hookPath(id), "hook"))
}

// switchHook turns a webhook on or off.
func switchHook(r *request) error {
	id, do := r.req.PathValue("webhook"), r.field("do")
	if do != "on" && do != "off" {
		return errBadForm
	}
	err := r.Service.EnableWebhook(r.req.Context(), r.actor, id, do == "on")
	return r.afterHook(id, nil, err, r.to(hookPath(id), "hook"+do))
}

func renewHook(r *request) error {
	id := r.req.PathValue("webhook")
	secret, err := r.Service.RenewWebhookSecret(r.req.Context(), r.actor, id)
	return after(err, nil, func() error { return r.showAlerts(alerts{Open: id, Secret: secret}) })
}

// testHook sends a test message. The page says what became of it.
func testHook(r *request) error {
	id := r.req.PathValue("webhook")
	_, err := r.Service.TestWebhook(r.req.Context(), r.actor, id)
	return r.afterHook(id, nil, err, r.to(hookPath(id)+"&tested=yes", ""))
}

func deleteHook(r *request) error {
	err := r.Service.DeleteWebhook(r.req.Context(), r.actor, r.req.PathValue("webhook"))
	return after(err, nil, r.to("/alerts", "hookdeleted"))
}
