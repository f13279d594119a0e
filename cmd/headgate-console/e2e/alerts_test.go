package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// receiver is a program that is told about alerts.
type receiver struct {
	url    string
	secret string

	mu       sync.Mutex
	messages []message
}

// message is what a receiver was sent.
type message struct {
	head http.Header
	body []byte
}

// receive starts a receiver that ends with the test.
func (j *journey) receive() *receiver {
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
		body, _ := io.ReadAll(sent.Body)
		r.mu.Lock()
		r.messages = append(r.messages, message{sent.Header, body})
		r.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	j.t.Cleanup(server.Close)
	r.url = server.URL + "/on-call"
	return r
}

// got returns the message of a type if it has come, or nil. The console looks for alerts once a
// minute, so either message may come first.
func (r *receiver) got(kind string) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.messages {
		var m struct{ Type string }
		if json.Unmarshal(r.messages[i].body, &m) == nil && m.Type == kind {
			return &r.messages[i]
		}
	}
	return nil
}

// says checks the signature of a message, its type, its condition and its text.
func (j *journey) says(m *message, kind, condition, text string) {
	j.t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(j.hooks.secret, "whsec_"))
	if err != nil || len(key) == 0 {
		j.t.Fatalf("the secret is %q: %v", j.hooks.secret, err)
	}

	sum := hmac.New(sha256.New, key)
	io.WriteString(sum, m.head.Get("webhook-id")+"."+m.head.Get("webhook-timestamp")+"."+string(m.body))
	if want := "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)); m.head.Get("webhook-signature") != want {
		j.t.Errorf("the signature is %s, want %s", m.head.Get("webhook-signature"), want)
	}

	var got struct {
		Type, Text string
		Data       struct{ Condition, App string }
	}
	if err := json.Unmarshal(m.body, &got); err != nil {
		j.t.Fatalf("%v: %s", err, m.body)
	}

	if got.Type != kind || got.Data.Condition != condition || got.Text != text {
		j.t.Errorf("the message is %s, want %s of %q: %s", m.body, kind, condition, text)
	}
}

// addWebhook adds a webhook for all requests of the journey so far, of which there are no more
// afterwards, and sends it a test message.
func (j *journey) addWebhook() {
	b := j.tab

	j.hooks = j.receive()
	b.turnTo("Activity", "Alerts")
	b.reads("There is no webhook of applications that you own.")
	b.press("New webhook")
	b.fill("Name", "on call")
	b.fill("URL", "http://10.0.0.1/on-call")
	b.tick("all, whichever there are")

	// These two are ticked in a new webhook; this one is to be about refusals alone. The last
	// requests were refused, so with so many refusals all requests of the journey are counted.
	b.tick("An application counts without Redis") // no longer
	b.tick("An application refuses policies")
	b.fill("At least so many", "32")
	b.fill("In the last minutes", "14")
	j.fits(b)

	// The network of the receiver is permitted by the flag of the console, and 10.0.0.1 is not.
	if status := b.press("Add the webhook"); status != http.StatusUnprocessableEntity {
		j.t.Errorf("an internal address has status %d", status)
	}
	b.reads("10.0.0.1 is an internal address, which needs leave: start the console with -webhook-allow")
	b.refusedWith(http.StatusUnprocessableEntity)

	b.fill("URL", j.hooks.url)
	b.press("Add the webhook")
	b.reads("The secret of the webhook is shown only once. Copy it now:", "quiet No alert stands.",
		"Nothing was sent yet.")
	j.hooks.secret = eval[string](b, `document.querySelector(".secret code").textContent`)
	j.fits(b)

	b.press("Send a test message")
	b.reads("The test message arrived: the answer was 204.", "arrived 204")
	m := j.hooks.got("test")
	if m == nil {
		j.t.Fatal("the receiver got nothing")
	}
	j.says(m, "test", "", `This is a test of the webhook "on call" of headgate.`)
	j.fits(b)
}

// alerted waits for the message about the requests that were refused.
func (j *journey) alerted() {
	b := j.tab
	var m *message
	b.until("the alert comes", func() bool { m = j.hooks.got("alert.begun"); return m != nil })

	const text = "shop: 64.0 % of 50 requests were refused in the last 14 minutes, more than 20 %"
	j.says(m, "alert.begun", "refused", text+".")

	b.turnTo("Activity", "Alerts")
	b.reads("on call", "alert "+text)
	b.press("on call")
	b.until("the message is listed", func() bool {
		return strings.Contains(eval[string](b, `[...document.querySelectorAll("tbody td")]`+
			`.map((cell) => cell.innerText.replace(/\s+/g, " ").trim()).join(" | ")`),
			"An alert began | shop Requests are refused | arrived 204")
	})

	b.press("Turn it off")
	b.reads("The webhook was turned off.", "The webhook is off. It is sent nothing but tests.")
}
