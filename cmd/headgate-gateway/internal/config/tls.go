package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// lookAgain is the pause between two looks whether a certificate was renewed.
const lookAgain = time.Second

// Certificate is the certificate of the ports. It is read anew when its files have changed, as
// when it was renewed. It is safe for concurrent use.
type Certificate struct {
	cert, key string // files

	mu     sync.Mutex // guards what follows
	pair   *tls.Certificate
	looked time.Time
	seen   [2]time.Time // when the files had changed last
	report func(error)  // or nil
}

// Report has f called when the files have changed and cannot be read, so that the former
// certificate goes on being shown.
func (c *Certificate) Report(f func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = f
}

// current returns the certificate at an instant, or an error if there never was one.
func (c *Certificate) current(now time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// However many handshakes there are, one in a second looks at the files.
	if c.pair != nil && now.Sub(c.looked) < lookAgain {
		return c.pair, nil
	}

	c.looked = now
	seen, err := changed(c.cert, c.key)
	if err == nil && c.pair != nil && seen == c.seen {
		return c.pair, nil
	}

	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.pair, c.seen = &pair, seen
			return c.pair, nil
		}
	}

	// A renewal writes two files, and a handshake between them finds a pair that does not fit. The
	// former pair is shown until the next look.
	if c.pair != nil && c.report != nil {
		c.report(err)
	}
	if c.pair != nil {
		err = nil
	}
	return c.pair, err
}

// changed returns when two files have changed last.
func changed(a, b string) (at [2]time.Time, err error) {
	for i, name := range []string{a, b} {
		info, err := os.Stat(name)
		if err != nil {
			return at, err
		}
		at[i] = info.ModTime()
	}
	return at, nil
}

// tls returns the configuration of the ports, or nil for plain HTTP.
func (g *given) tls() (*tls.Config, error) {
	switch {
	case g.cert == "" && g.key == "" && g.clientCA != "":
		return nil, errors.New("-tls-client-ca: without -tls-cert and -tls-key there is no TLS")
	case g.cert == "" && g.key == "":
		return nil, nil
	case g.cert == "" || g.key == "":
		return nil, errors.New("-tls-cert and -tls-key: one is missing")
	}

	// The first look is at the start: a gateway without any certificate ends, instead of failing
	// handshakes.
	cert := &Certificate{cert: g.cert, key: g.key}
	if _, err := cert.current(time.Now()); err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	g.Certificate = cert
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return cert.current(time.Now())
		},
	}

	if g.clientCA == "" {
		return c, nil
	}

	text, err := os.ReadFile(g.clientCA)
	if err != nil {
		return nil, fmt.Errorf("-tls-client-ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("-tls-client-ca: %q has no certificate in PEM", clip(g.clientCA))
	}
	return c, nil
}
