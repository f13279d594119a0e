package rpc

import (
	"crypto/tls"

	"github.com/headgate/headgate/core"
)

// CodeNoTLS is the code of the finding that a rule counts by the certificates of clients,
// and a call came without TLS.
const CodeNoTLS = "HG015"

// NoTLS returns the finding with [CodeNoTLS]. remedy says what to do.
func NoTLS(remedy string) core.Finding {
	return core.Finding{Code: CodeNoTLS, Text: "a rule counts by the TLS identity of clients, " +
		"and a call came without TLS: " +
		"all such callers share its limit; " + remedy}
}

// Identity returns the identity in the certificate of a client: its URI, as SPIFFE has it,
// or else its subject, its first DNS name or its first e-mail address. It is "" if there
// is no certificate that the server has verified.
func Identity(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 {
		return ""
	}

	// The kind stands before the identity: a name in one field must not be taken for that in
	// another.
	c := s.VerifiedChains[0][0]
	switch subject := c.Subject.String(); {
	case len(c.URIs) > 0 && c.URIs[0] != nil:
		return "uri:" + c.URIs[0].String()
	case subject != "":
		return "subject:" + subject
	case len(c.DNSNames) > 0:
		return "dns:" + c.DNSNames[0]
	case len(c.EmailAddresses) > 0:
		return "email:" + c.EmailAddresses[0]
	}
	return ""
}
