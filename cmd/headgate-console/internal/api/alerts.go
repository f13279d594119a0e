package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/strictjson"
)

// conditions is a list of conditions of alerts. Objects with other fields are refused.
type conditions []service.Condition

// UnmarshalJSON implements [json.Unmarshaler].
func (c *conditions) UnmarshalJSON(b []byte) error {
	return strictjson.Decode(b, (*[]service.Condition)(c))
}

// webhookDraft is what people say about a webhook, with times in seconds.
type webhookDraft struct {
	Name        string     `json:"name"`
	URL         string     `json:"url"`
	Apps        []string   `json:"apps"`
	All         bool       `json:"all"`
	Conditions  conditions `json:"conditions"`
	RepeatAfter int64      `json:"repeat_after"`
	Disabled    bool       `json:"disabled"`
}

func (w webhookDraft) draft() service.WebhookDraft {
	return service.WebhookDraft{
		Name: w.Name, URL: w.URL, Apps: w.Apps, All: w.All, Conditions: w.Conditions,
		RepeatAfter: duration(w.RepeatAfter), Enabled: !w.Disabled,
	}
}

type webhookView struct {
	ID string `json:"id"`
	webhookDraft
	CreatedAt  time.Time      `json:"created_at"`
	CreatedBy  string         `json:"created_by"`
	RenewedAt  time.Time      `json:"secret_renewed_at,omitzero"`
	Standing   []alertView    `json:"standing"`
	Deliveries []deliveryView `json:"deliveries"`
}

type alertView struct {
	Condition string    `json:"condition"`
	App       string    `json:"app"`
	Since     time.Time `json:"since"`
	Text      string    `json:"text"`
}

type deliveryView struct {
	ID        string    `json:"id"`
	Event     string    `json:"event"`
	Condition string    `json:"condition"`
	App       string    `json:"app"`
	CreatedAt time.Time `json:"created_at"`
	State     string    `json:"state"`
	Attempts  int64     `json:"attempts"`
	NextAt    time.Time `json:"next_at,omitzero"`
	TriedAt   time.Time `json:"tried_at,omitzero"`
	Status    int64     `json:"status"`
	Error     string    `json:"error"`
}

func deliveryOf(d service.Delivery) deliveryView {
	return deliveryView{d.ID, d.Event, string(d.Kind), d.App, d.CreatedAt, d.State, d.Attempts, d.NextAt,
		d.TriedAt, d.Status, d.Error}
}

func webhookOf(w service.Webhook) webhookView {
	return webhookView{
		ID: w.ID, CreatedAt: w.CreatedAt, CreatedBy: w.CreatedBy, RenewedAt: w.RenewedAt,
		webhookDraft: webhookDraft{w.Name, w.URL, list(w.Apps), w.All, list(w.Conditions),
			int64(w.RepeatAfter / time.Second), !w.Enabled},
		Standing: mapped(w.Standing, func(a service.Alert) alertView {
			return alertView{string(a.Kind), a.App, a.Since, a.Text}
		}),
		Deliveries: mapped(w.Deliveries, deliveryOf),
	}
}

func (c *call) listWebhooks() error {
	hooks, err := c.o.Service.Webhooks(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Webhooks []webhookView `json:"webhooks"`
	}{mapped(hooks, webhookOf)}, "")
}

func (c *call) readWebhook() error {
	w, err := c.o.Service.Webhook(c.ctx(), c.actor, c.path("webhook"))
	if err != nil {
		return err
	}
	return c.sendTagged(webhookOf(w), "")
}

// createWebhook answers with the secret, which no later answer contains.
func (c *call) createWebhook() error {
	var in webhookDraft
	if err := c.decode(&in); err != nil {
		return err
	}

	w, secret, err := c.o.Service.CreateWebhook(c.ctx(), c.actor, in.draft())
	if err != nil {
		return err
	}

	return c.send(http.StatusCreated, struct {
		Webhook webhookView `json:"webhook"`
		Secret  string      `json:"secret"`
	}{webhookOf(w), secret})
}

func (c *call) saveWebhook() error {
	var in webhookDraft
	if err := c.decode(&in); err != nil {
		return err
	}
	if _, err := c.o.Service.UpdateWebhook(c.ctx(), c.actor, c.path("webhook"), in.draft()); err != nil {
		return err
	}
	return c.readWebhook()
}

func (c *call) deleteWebhook() error {
	return c.nothing(c.o.Service.DeleteWebhook(c.ctx(), c.actor, c.path("webhook")))
}

func (c *call) enableWebhook() error {
	return c.nothing(c.o.Service.EnableWebhook(c.ctx(), c.actor, c.path("webhook"), true))
}

func (c *call) disableWebhook() error {
	return c.nothing(c.o.Service.EnableWebhook(c.ctx(), c.actor, c.path("webhook"), false))
}

// renewWebhookSecret answers with the new secret, which no later answer contains.
func (c *call) renewWebhookSecret() error {
	secret, err := c.o.Service.RenewWebhookSecret(c.ctx(), c.actor, c.path("webhook"))
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, struct {
		Secret string `json:"secret"`
	}{secret})
}

// testWebhook sends a message and answers with what became of it.
func (c *call) testWebhook() error {
	d, err := c.o.Service.TestWebhook(c.ctx(), c.actor, c.path("webhook"))
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, deliveryOf(d))
}
