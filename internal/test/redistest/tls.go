package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/freeport"
)

// TLS starts a server that speaks TLS at addr and plain Redis at its own Addr,
// with args added to its command line, and returns the configuration with which
// a client trusts it. The certificate is made for this test and expires after
// an hour. The server ends with the test, which is skipped as by [Start].
func TLS(t testing.TB, args ...string) (s *Server, addr string, config *tls.Config) {
	t.Helper()
	cert, key, pool := certificate(t)
	s = start(t, func() []string {
		addr = freeport.Addr(t)
		_, port, _ := net.SplitHostPort(addr)
		return append(append(transient(), "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", cert, "--tls-auth-clients", "no"), args...)
	})
	return s, addr, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// certificate writes a self-signed certificate for 127.0.0.1 and its key into
// files.
func certificate(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	// The certificate is its own authority.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "headgate test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	made, err := x509.ParseCertificate(public)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(made)
	return cert, key, pool
}
