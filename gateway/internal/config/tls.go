package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
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
	pair, err := tls.LoadX509KeyPair(g.cert, g.key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
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
