// Package webhook sends signed messages to the URLs of receivers, as Standard Webhooks has it. It
// sends nothing to internal addresses without leave, whatever a name resolves to, follows no
// redirect and uses no proxy. A [Sender] sends a [Message].
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/textform"
)

const (
	// Timeout bounds an attempt, from the look-up of the name to the end of the answer.
	Timeout = 10 * time.Second

	// MaxURL is the largest number of bytes of a URL.
	MaxURL = 1000

	// maxAnswer is how many bytes of an answer are read, and maxHeader of its header.
	maxAnswer = 4 << 10
	maxHeader = 16 << 10

	// secretPrefix begins every secret.
	secretPrefix = "whsec_"
)

// The headers of a message.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// NewSecret returns 256 random bits in the form of Standard Webhooks.
func NewSecret() string {
	key := make([]byte, 32)
	rand.Read(key) // which never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Message is what is sent.
type Message struct {
	ID      string // the same in each attempt
	URL     string
	Secrets []string // the message is signed with each of them
	Body    []byte   // JSON
}

// Options configure a [Sender].
type Options struct {
	// Networks are the internal networks to which messages may be sent; nil means none.
	Networks *Networks

	// Clock returns the time of a message; nil means time.Now.
	Clock func() time.Time

	// Resolver looks names up; nil means net.DefaultResolver.
	Resolver *net.Resolver

	// Timeout bounds an attempt; 0 means Timeout.
	Timeout time.Duration
}

// Sender sends messages. It is safe for concurrent use, and keeps no connection.
type Sender struct {
	o      Options
	client *http.Client
}

// New returns a sender.
func New(o Options) *Sender {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Timeout = cmp.Or(o.Timeout, Timeout)

	// A redirect would carry the message to an address that no user has given. Without kept
	// connections, control sees the address of every attempt.
	s := &Sender{o: o}
	dialer := &net.Dialer{Control: s.control, Resolver: o.Resolver}
	s.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxHeader,
		},
	}

	return s
}

// control refuses the address to which a connection is made, so that it does not matter what a
// name has resolved to before.
func (s *Sender) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return s.o.Networks.Check(to.Addr())
}

// CheckURL returns an error if nothing can be sent to a URL. It does not look up its name.
func (s *Sender) CheckURL(text string) error {
	if len(text) > MaxURL {
		return fmt.Errorf("%d bytes are more than %d", len(text), MaxURL)
	}

	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		return errors.New("it is not a URL that begins with https:// or http://")
	case u.User != nil:
		return errors.New("it has a user or a password")
	case u.Fragment != "":
		return errors.New("it has a fragment")
	case u.Port() != "" && !isPort(u.Port()):
		return errors.New("its port is not a number from 1 to 65535")
	}

	// A name is checked when it has been looked up for an attempt; see control.
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return s.o.Networks.Check(ip)
	}
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// Place returns the scheme and the host of a URL. The rest of it may be a secret.
func Place(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Sign returns the signature of a message for the header.
func Sign(secrets []string, id string, at time.Time, body []byte) (string, error) {
	var list []string
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		if err != nil {
			return "", errors.New("webhook: the secret is not of base64")
		}

		sum := hmac.New(sha256.New, key)
		fmt.Fprintf(sum, "%s.%d.", id, at.Unix())
		sum.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	}
	return strings.Join(list, " "), nil
}

// Send sends a message once, and returns the status of the answer, or 0 without one. The error
// is nil if the status is of the 200s. Its text is for people, and holds neither the secret nor
// the path of the URL.
func (s *Sender) Send(ctx context.Context, m Message) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()

	if err := s.CheckURL(m.URL); err != nil {
		return 0, fmt.Errorf("the URL cannot be used: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0, errors.New("the URL cannot be used")
	}

	// The time is part of what is signed, so that a receiver can refuse a message that is sent
	// again later.
	now := s.o.Clock()
	signature, err := Sign(m.Secrets, m.ID, now, m.Body)
	if err != nil {
		return 0, err
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headgate-console")
	r.Header.Set(HeaderID, m.ID)
	r.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(HeaderSignature, signature)

	answer, err := s.client.Do(r)
	if err != nil {
		return 0, s.reason(err)
	}
	defer answer.Body.Close()

	// The reason that a receiver gives is at the beginning of its answer.
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))

	switch code := answer.StatusCode; {
	case code/100 == 2: // the receiver has the message, and another attempt would repeat it
		return code, nil
	case code/100 == 3:
		return code, fmt.Errorf("the answer was %d, a redirect, which is not followed", code)
	case err != nil:
		return code, fmt.Errorf("the answer %d did not end: %w", code, s.reason(err))
	default:
		return code, fmt.Errorf("the answer was %d: %s", code, shown(string(text)))
	}
}

// maxShown is how many bytes of an answer an error has.
const maxShown = 200

// shown returns the beginning of an answer in one line.
func shown(text string) string {
	// Nothing of an answer may move the cursor or break the line of a log or a page.
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), maxShown)], ""))
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "nothing was said"
	}
	return textform.Clip(text)
}

// reason returns the error of an attempt without the URL.
func (s *Sender) reason(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}

	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it took longer than %s", s.o.Timeout)
	case errors.As(err, &dns):
		return fmt.Errorf("the name %s cannot be looked up", textform.Clip(dns.Name))
	case errors.As(err, &unknown):
		return errors.New("its certificate is signed by an authority that is not known")
	}
	return errors.New(shown(err.Error()))
}
