package store

// Webhook is a row of a receiver of alerts.
type Webhook struct {
	ID           string
	Name         string
	URL          string
	Apps         string // JSON; an empty list stands for all applications
	Conditions   string // JSON
	RepeatAfter  int64  // µs; 0 means never
	Enabled      bool
	Secret       string
	SecretBefore string // or ""
	RenewedAt    int64  // µs; 0 if the secret is the first
	CreatedAt    int64  // µs
	CreatedBy    string
}

const webhookColumns = "SELECT id, name, url, apps, conditions, repeat_after, enabled, secret, secret_before, " +
	"renewed_at, created_at, created_by FROM webhooks"

func scanWebhook(s scanner) (w Webhook, err error) {
	return w, s.Scan(&w.ID, &w.Name, &w.URL, &w.Apps, &w.Conditions, &w.RepeatAfter, &w.Enabled,
		&w.Secret, &w.SecretBefore, &w.RenewedAt, &w.CreatedAt, &w.CreatedBy)
}

// secrets returns what is secret in a row, by column. The URL of a receiver often is.
func (w *Webhook) secrets() map[string]*string {
	return map[string]*string{"url": &w.URL, "secret": &w.Secret, "secret_before": &w.SecretBefore}
}

// place names a column that is secret.
func (w *Webhook) place(column string) string { return "webhooks." + column + " " + w.ID }

// opened returns a row with its secrets as they are.
func (t *Tx) opened(w Webhook) (Webhook, error) {
	for column, text := range w.secrets() {
		secret, err := t.db.seal.opened(*text, w.place(column))
		if err != nil {
			return w, err
		}
		*text = secret
	}
	return w, nil
}

// withSealedSecrets returns a row with its secrets as they are stored.
func (t *Tx) withSealedSecrets(w Webhook) Webhook {
	for column, text := range w.secrets() {
		*text = t.db.seal.encrypted(*text, w.place(column))
	}
	return w
}

// Webhooks returns all webhooks by name.
func (t *Tx) Webhooks() ([]Webhook, error) {
	list, err := readAll(t, scanWebhook, webhookColumns+" ORDER BY name, id")
	for i := range list {
		if err == nil {
			list[i], err = t.opened(list[i])
		}
	}
	return list, err
}

// Webhook returns one webhook, or ErrNotFound.
func (t *Tx) Webhook(id string) (Webhook, error) {
	w, err := readOne(t, scanWebhook, webhookColumns+" WHERE id = ?", id)
	if err != nil {
		return w, err
	}
	return t.opened(w)
}

// InsertWebhook adds a webhook.
func (t *Tx) InsertWebhook(w Webhook) error {
	w = t.withSealedSecrets(w)
	const q = "INSERT INTO webhooks (id, name, url, apps, conditions, repeat_after, enabled, secret, secret_before, " +
		"renewed_at, created_at, created_by) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, w.ID, w.Name, w.URL, w.Apps, w.Conditions, w.RepeatAfter, w.Enabled,
		w.Secret, w.SecretBefore, w.RenewedAt, w.CreatedAt, w.CreatedBy)
	return err
}

// UpdateWebhook writes all columns of a webhook but those of its creation, or returns ErrNotFound.
func (t *Tx) UpdateWebhook(w Webhook) error {
	w = t.withSealedSecrets(w)
	const q = "UPDATE webhooks SET name = ?, url = ?, apps = ?, conditions = ?, repeat_after = ?, enabled = ?, " +
		"secret = ?, secret_before = ?, renewed_at = ? WHERE id = ?"
	return t.execOne(ErrNotFound, q, w.Name, w.URL, w.Apps, w.Conditions, w.RepeatAfter, w.Enabled,
		w.Secret, w.SecretBefore, w.RenewedAt, w.ID)
}

// DeleteWebhook removes a webhook with its alerts and its deliveries, or returns ErrNotFound.
func (t *Tx) DeleteWebhook(id string) error {
	for _, q := range []string{"DELETE FROM alerts WHERE webhook = ?", "DELETE FROM deliveries WHERE webhook = ?"} {
		if _, err := t.exec(q, id); err != nil {
			return err
		}
	}
	return t.execOne(ErrNotFound, "DELETE FROM webhooks WHERE id = ?", id)
}

// Alert is a row of a condition that holds, for a webhook.
type Alert struct {
	Webhook string
	Kind    string
	App     string // "" for what concerns all applications
	FirstAt int64  // µs
	Since   int64  // µs; 0 until it holds for long enough
	ToldAt  int64  // µs
	Detail  string // JSON
}

const alertColumns = "SELECT webhook, kind, app, first_at, since, told_at, detail FROM alerts"

func scanAlert(s scanner) (a Alert, err error) {
	return a, s.Scan(&a.Webhook, &a.Kind, &a.App, &a.FirstAt, &a.Since, &a.ToldAt, &a.Detail)
}

// Alerts returns all alerts.
func (t *Tx) Alerts() ([]Alert, error) {
	return readAll(t, scanAlert, alertColumns+" ORDER BY webhook, kind, app")
}

// SetAlert adds an alert, or writes all of one that is there.
func (t *Tx) SetAlert(a Alert) error {
	const q = "REPLACE INTO alerts (webhook, kind, app, first_at, since, told_at, detail) VALUES (?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, a.Webhook, a.Kind, a.App, a.FirstAt, a.Since, a.ToldAt, a.Detail)
	return err
}

// DeleteAlert removes an alert.
func (t *Tx) DeleteAlert(a Alert) error {
	_, err := t.exec("DELETE FROM alerts WHERE webhook = ? AND kind = ? AND app = ?", a.Webhook, a.Kind, a.App)
	return err
}

// Delivery is the row of a message. Its State is StateWaiting, StateDone or StateFailed.
type Delivery struct {
	ID        string
	Webhook   string
	Event     string
	Kind      string
	App       string
	Body      string
	CreatedAt int64 // µs
	State     string
	Attempts  int64
	NextAt    int64 // µs
	Status    int64 // of the last answer, or 0
	Error     string
	TriedAt   int64 // µs; the end of the last attempt, or 0
}

const deliveryColumns = "SELECT id, webhook, event, kind, app, body, created_at, " +
	"state, attempts, next_at, status, error, tried_at FROM deliveries"

func scanDelivery(s scanner) (d Delivery, err error) {
	return d, s.Scan(&d.ID, &d.Webhook, &d.Event, &d.Kind, &d.App, &d.Body, &d.CreatedAt,
		&d.State, &d.Attempts, &d.NextAt, &d.Status, &d.Error, &d.TriedAt)
}

// InsertDelivery adds a message.
func (t *Tx) InsertDelivery(d Delivery) error {
	const q = "INSERT INTO deliveries (id, webhook, event, kind, app, body, created_at, " +
		"state, attempts, next_at, status, error, tried_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, d.ID, d.Webhook, d.Event, d.Kind, d.App, d.Body, d.CreatedAt,
		d.State, d.Attempts, d.NextAt, d.Status, d.Error, d.TriedAt)
	return err
}

// Delivery returns one message, or ErrNotFound.
func (t *Tx) Delivery(id string) (Delivery, error) {
	return readOne(t, scanDelivery, deliveryColumns+" WHERE id = ?", id)
}

// WaitingDeliveries returns all messages that wait, the oldest first.
func (t *Tx) WaitingDeliveries() ([]Delivery, error) {
	return readAll(t, scanDelivery, deliveryColumns+" WHERE state = ? ORDER BY created_at, id", StateWaiting)
}

// DeliveriesOf returns at most limit messages of a webhook, the newest first.
func (t *Tx) DeliveriesOf(webhook string, limit int) ([]Delivery, error) {
	const q = deliveryColumns + " WHERE webhook = ? ORDER BY created_at DESC, id DESC LIMIT ?"
	return readAll(t, scanDelivery, q, webhook, limit)
}

// CountWaiting returns how many messages of a webhook wait.
func (t *Tx) CountWaiting(webhook string) (int64, error) {
	return readOne(t, scanCount,
		"SELECT COUNT(*) FROM deliveries WHERE webhook = ? AND state = ?", webhook, StateWaiting)
}

// ClaimDelivery raises the attempts of a waiting message from the number in d, and sets when it
// is tried again if no program says what became of this attempt. It returns ErrStale if another
// program has claimed it.
func (t *Tx) ClaimDelivery(d Delivery, next int64) error {
	const q = "UPDATE deliveries SET attempts = attempts + 1, next_at = ? WHERE id = ? AND state = ? AND attempts = ?"
	return t.execOne(ErrStale, q, next, d.ID, StateWaiting, d.Attempts)
}

// EndAttempt writes what became of an attempt, or returns ErrStale if it is not the last one.
func (t *Tx) EndAttempt(d Delivery) error {
	const q = "UPDATE deliveries SET state = ?, next_at = ?, status = ?, error = ?, tried_at = ? " +
		"WHERE id = ? AND state = ? AND attempts = ?"
	return t.execOne(ErrStale, q, d.State, d.NextAt, d.Status, d.Error, d.TriedAt, d.ID, StateWaiting, d.Attempts)
}

// CancelDeliveries makes the messages of a webhook that wait fail for a reason.
func (t *Tx) CancelDeliveries(webhook, reason string, at int64) error {
	const q = "UPDATE deliveries SET state = ?, error = ?, tried_at = ? WHERE webhook = ? AND state = ?"
	_, err := t.exec(q, StateFailed, reason, at, webhook, StateWaiting)
	return err
}

// ForgetDeliveries deletes the messages of a webhook that do not wait, apart from those that were
// made at an instant in µs or later.
func (t *Tx) ForgetDeliveries(webhook string, before int64) error {
	const q = "DELETE FROM deliveries WHERE webhook = ? AND state <> ? AND created_at < ?"
	_, err := t.exec(q, webhook, StateWaiting, before)
	return err
}
