package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

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

	// All files are read, so that each of them is followed whatever is wrong with another.
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	cert, certErr := g.read("tls-cert", g.cert)
	key, keyErr := g.read("tls-key", g.key)
	errs := []error{in("-tls-cert", certErr), in("-tls-key", keyErr)}
	if certErr == nil && keyErr == nil {
		pair, err := tls.X509KeyPair(cert, key)
		errs = append(errs, in("-tls-cert and -tls-key", err))
		c.Certificates = []tls.Certificate{pair}
	}

	if g.clientCA != "" {
		text, err := g.read("tls-client-ca", g.clientCA)
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if err == nil && !c.ClientCAs.AppendCertsFromPEM(text) {
			err = fmt.Errorf("%q has no certificate in PEM", clip(g.clientCA))
		}
		errs = append(errs, in("-tls-client-ca", err))
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	// A gateway starts with such a certificate: some clients do not look, and a restart would have
	// none.
	if err := checkTime(c, time.Now()); err != nil {
		g.Origin.Warnings = append(g.Origin.Warnings, err.Error())
	}
	return c, nil
}

// in returns an error that names a setting, or nil for nil.
func in(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// checkTime returns an error if the certificate is not valid at an instant.
func checkTime(c *tls.Config, now time.Time) error {
	leaf := c.Certificates[0].Leaf
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("-tls-cert: the certificate is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("-tls-cert: the certificate has expired at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// isSameCertificate reports whether two configurations show one certificate.
func isSameCertificate(a, b *tls.Config) bool {
	return bytes.Equal(a.Certificates[0].Certificate[0], b.Certificates[0].Certificate[0])
}
