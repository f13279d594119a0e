package config

import (
	"errors"
	"flag"
	"fmt"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
)

func (g *given) oidcFlags(f *flag.FlagSet) {
	// The provider, and the console as its client.
	f.StringVar(&g.oidc.Issuer, "oidc-issuer", "", "`URL` of a provider of OpenID Connect at which people may log in")
	f.StringVar(&g.oidc.ClientID, "oidc-client", "", "`id` of the console at the provider")
	f.StringVar(&g.oidc.Secret, "oidc-secret", "", "`secret` of the console at the provider; better in "+EnvOIDC)
	f.StringVar(&g.oidc.PublicURL, "public-url", "",
		"`URL` of the console as browsers see it, such as https://console.example.com; "+
			"the messages of alerts link to it, and the provider sends browsers to "+oidc.CallbackPath)

	// Who may log in, and under which name.
	f.StringVar(&g.oidc.UserClaim, "oidc-user-claim", "preferred_username",
		"`claim` that names the user; email has to be verified")
	f.StringVar(&g.oidc.GroupsClaim, "oidc-groups-claim", "groups", "`claim` with the groups of the user")
	f.Func("oidc-group",
		"`group` whose members may log in; may be repeated, and without it all users of the console may",
		AppendTo(&g.oidc.Groups))
}

// provider returns the provider of OpenID Connect, or nil for none.
func (g *given) provider() (*oidc.Provider, error) {
	o := g.oidc
	if o.Issuer == "" {
		if o.ClientID != "" || len(o.Groups) > 0 {
			return nil, errors.New("-oidc-client and -oidc-group: without -oidc-issuer they are ignored")
		}
		if o.PublicURL != "" {
			if err := oidc.CheckPublicURL(o.PublicURL); err != nil {
				return nil, fmt.Errorf("-public-url: %w", err)
			}
		}
		return nil, nil
	}

	p, err := oidc.New(o)
	if err != nil {
		return nil, fmt.Errorf("-oidc-issuer, -oidc-client, -oidc-secret or -public-url: %w", err)
	}
	return p, nil
}
