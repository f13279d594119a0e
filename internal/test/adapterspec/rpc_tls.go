package adapterspec

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// An Authority issues certificates for one test.
type Authority struct {
	t       testing.TB
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
	pool    *x509.CertPool
	serial  int64
}

// NewAuthority returns an authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, pool: x509.NewCertPool()}
	name := pkix.Name{CommonName: "authority"}
	made := a.issue(&x509.Certificate{Subject: name, IsCA: true, BasicConstraintsValid: true})
	a.cert, a.private = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

func (a *Authority) issue(c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}

	// The authority's own certificate is the first, and signs itself.
	a.serial++
	c.SerialNumber = big.NewInt(a.serial)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.private
	if parent == nil {
		parent, signer = c, private
	}

	public, err := x509.CreateCertificate(rand.Reader, c, parent, private.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(public)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{public}, PrivateKey: private, Leaf: leaf}
}

// Server returns the configuration of a server on 127.0.0.1, which verifies the
// certificates of clients that have one.
func (a *Authority) Server() *tls.Config {
	a.t.Helper()
	cert := a.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: a.pool,
		ClientAuth: tls.VerifyClientCertIfGiven}
}

// Client returns the configuration of a client. It has a certificate for the SPIFFE ID,
// unless that is "".
func (a *Authority) Client(id string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.pool}
	if id != "" {
		uri, err := url.Parse(id)
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{a.issue(&x509.Certificate{URIs: []*url.URL{uri}})}
	}
	return c
}
