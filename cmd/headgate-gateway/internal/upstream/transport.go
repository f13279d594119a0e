package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"
)

// idleTime is how long a connection without a request is kept.
const idleTime = 90 * time.Second

// transport returns the connections of an upstream.
func transport(o *Options) (*http.Transport, error) {
	// Without TLS no protocol is negotiated, so HTTP/2 in the clear has to be asked for by the URL.
	protocols := &http.Protocols{}
	switch o.Addresses[0].Scheme {
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}

	// Without settings the authorities and the name are those that net/http takes.
	var config *tls.Config
	if o.CA != nil || o.TLSName != "" {
		roots, err := pool(o.CA)
		if err != nil {
			return nil, err
		}
		config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: o.TLSName}
	}

	idle := o.Idle
	if idle == 0 {
		idle = DefaultIdle
	}

	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		Protocols:             protocols,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ResponseHeaderTimeout: o.HeaderTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       idleTime,
		DisableCompression:    true, // the client gets what the upstream sends
		WriteBufferSize:       8 << 10,
		ReadBufferSize:        8 << 10,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second},
	}, nil
}

// pool returns the authorities of a text in PEM, or nil for those of the system.
func pool(text []byte) (*x509.CertPool, error) {
	if text == nil {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("it has no certificate in PEM")
	}
	return roots, nil
}
