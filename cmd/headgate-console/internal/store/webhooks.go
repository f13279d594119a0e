package store

// Webhook is a row of a receiver of alerts.
type Webhook struct {
	ID           string `db:"id" set:"once"`
	Name         string `db:"name"`
	URL          string `db:"url"`
	Apps         string `db:"apps"`         // JSON; an empty list stands for all applications
	Conditions   string `db:"conditions"`   // JSON
	RepeatAfter  int64  `db:"repeat_after"` // µs; 0 means never
	Enabled      bool   `db:"enabled"`
	Secret       string `db:"secret"`
	SecretBefore string `db:"secret_before"`         // or ""
	RenewedAt    int64  `db:"renewed_at"`            // µs; 0 if the secret is the first
	CreatedAt    int64  `db:"created_at" set:"once"` // µs
	CreatedBy    string `db:"created_by" set:"once"`
}

var webhookRows = newRows[Webhook]("webhooks")

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
	list, err := webhookRows.all(t, "ORDER BY name, id")
	for i := range list {
		if err == nil {
			list[i], err = t.opened(list[i])
		}
	}
	return list, err
}

// Webhook returns one webhook, or ErrNotFound.
func (t *Tx) Webhook(id string) (Webhook, error) {
	w, err := webhookRows.one(t, "WHERE id = ?", id)
	if err != nil {
		return w, err
	}
	return t.opened(w)
}

// InsertWebhook adds a webhook.
func (t *Tx) InsertWebhook(w Webhook) error { return webhookRows.insert(t, t.withSealedSecrets(w)) }

// UpdateWebhook writes all columns of a webhook but those of its creation, or returns ErrNotFound.
func (t *Tx) UpdateWebhook(w Webhook) error {
	return webhookRows.update(t, ErrNotFound, t.withSealedSecrets(w), "WHERE id = ?", w.ID)
}

// DeleteWebhook removes a webhook with its alerts and its deliveries, or returns ErrNotFound.
func (t *Tx) DeleteWebhook(id string) error {
	for _, q := range []string{"DELETE FROM alerts WHERE webhook = ?", "DELETE FROM deliveries WHERE webhook = ?"} {
		if err := t.exec(q, id); err != nil {
			return err
		}
	}
	return t.execOne(ErrNotFound, "DELETE FROM webhooks WHERE id = ?", id)
}

// Alert is a row of a condition that holds, for a webhook.
type Alert struct {
	Webhook string `db:"webhook"`
	Kind    string `db:"kind"`
	App     string `db:"app"`      // "" for what concerns all applications
	FirstAt int64  `db:"first_at"` // µs
	Since   int64  `db:"since"`    // µs; 0 until it holds for long enough
	ToldAt  int64  `db:"told_at"`  // µs
	Detail  string `db:"detail"`   // JSON
}

var alertRows = newRows[Alert]("alerts")

// Alerts returns all alerts.
func (t *Tx) Alerts() ([]Alert, error) { return alertRows.all(t, "ORDER BY webhook, kind, app") }

// SetAlert adds an alert, or writes all of one that is there.
func (t *Tx) SetAlert(a Alert) error { return alertRows.replace(t, a) }

// DeleteAlert removes an alert.
func (t *Tx) DeleteAlert(a Alert) error {
	return t.exec("DELETE FROM alerts WHERE webhook = ? AND kind = ? AND app = ?", a.Webhook, a.Kind, a.App)
}

// Delivery is the row of a message. Its State is StateWaiting, StateDone or StateFailed.
type Delivery struct {
	ID        string `db:"id"`
	Webhook   string `db:"webhook"`
	Event     string `db:"event"`
	Kind      string `db:"kind"`
	App       string `db:"app"`
	Body      string `db:"body"`
	CreatedAt int64  `db:"created_at"` // µs
	State     string `db:"state"`
	Attempts  int64  `db:"attempts"`
	NextAt    int64  `db:"next_at"` // µs
	Status    int64  `db:"status"`  // of the last answer, or 0
	Error     string `db:"error"`
	TriedAt   int64  `db:"tried_at"` // µs; the end of the last attempt, or 0
}

var deliveryRows = newRows[Delivery]("deliveries")

// InsertDelivery adds a message.
func (t *Tx) InsertDelivery(d Delivery) error { return deliveryRows.insert(t, d) }

// Delivery returns one message, or ErrNotFound.
func (t *Tx) Delivery(id string) (Delivery, error) { return deliveryRows.one(t, "WHERE id = ?", id) }

// WaitingDeliveries returns all messages that wait, the oldest first.
func (t *Tx) WaitingDeliveries() ([]Delivery, error) {
	return deliveryRows.all(t, "WHERE state = ? ORDER BY created_at, id", StateWaiting)
}

// DeliveriesOf returns at most limit messages of a webhook, the newest first.
func (t *Tx) DeliveriesOf(webhook string, limit int) ([]Delivery, error) {
	return deliveryRows.all(t, "WHERE webhook = ? ORDER BY created_at DESC, id DESC LIMIT ?", webhook, limit)
}

// CountWaiting returns how many messages of a webhook wait.
func (t *Tx) CountWaiting(webhook string) (int64, error) {
	return readOne[int64](t,
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
	return t.exec(q, StateFailed, reason, at, webhook, StateWaiting)
}

// ForgetDeliveries deletes the messages of a webhook that do not wait, apart from those that were
// made at an instant in µs or later.
func (t *Tx) ForgetDeliveries(webhook string, before int64) error {
	const q = "DELETE FROM deliveries WHERE webhook = ? AND state <> ? AND created_at < ?"
	return t.exec(q, webhook, StateWaiting, before)
}
