package rls

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const examples = "../../../../examples/gateway/"

// envoyExample reads the example by the definitions of Envoy.
func envoyExample(t *testing.T) *bootstrap.Bootstrap {
	t.Helper()
	text, err := os.ReadFile(examples + "envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}

	// Envoy reads YAML through JSON into its messages: fields that they do not have fail here too.
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrap.Bootstrap{}
	if err := protojson.Unmarshal(data, b); err != nil {
		t.Fatal(err)
	}

	// An Error, not a Fatal: a file that is not valid still shows what it means.
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	return b
}

// unpack returns a message of an Any, which has to be valid.
func unpack[M interface {
	proto.Message
	ValidateAll() error
}](t *testing.T, a *anypb.Any, m M) M {
	t.Helper()
	if err := a.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	if err := m.ValidateAll(); err != nil {
		t.Error(err)
	}
	return m
}

func TestEnvoyExample(t *testing.T) {
	b := envoyExample(t)
	for _, c := range b.GetStaticResources().GetClusters() {
		for _, a := range c.GetTypedExtensionProtocolOptions() {
			unpack(t, a, &upstream.HttpProtocolOptions{})
		}
	}

	a := b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig()
	m := unpack(t, a, &manager.HttpConnectionManager{})
	early := unpack(t, m.GetEarlyHeaderMutationExtensions()[0].GetTypedConfig(), &early.HeaderMutation{})

	// Else a client would degrade itself, or another's answer, by a header that only the gateway
	// sends.
	if got := early.GetMutations()[0].GetRemove(); got != "headgate-degraded" {
		t.Errorf("of a client's headers %q is removed", got)
	}

	// A name with an underscore is another spelling of a header, which a removal by name would
	// miss.
	if got := m.GetCommonHttpProtocolOptions().GetHeadersWithUnderscoresAction(); got !=
		core.HttpProtocolOptions_DROP_HEADER {
		t.Errorf("names with an underscore: %v", got)
	}

	f := unpack(t, m.GetHttpFilters()[0].GetTypedConfig(), &filter.RateLimit{})
	if f.GetDomain() != "shop" ||
		f.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName() != "headgate" {
		t.Errorf("the filter asks %v", f)
	}

	// The last two charge tokens after the answer: they ask with no hits, and are debited when
	// they are known.
	limits := m.GetRouteConfig().GetVirtualHosts()[0].GetRateLimits()
	if got := keysOf(limits); !slices.Equal(got,
		list("remote_address", "tenant", "path remote_address", "tokens_of", "tokens_of headgate=debit")) {
		t.Errorf("the descriptors are %q", got)
	}
}

// keysOf returns the keys of the descriptors that actions make.
func keysOf(limits []*route.RateLimit) (keys []string) {
	for _, l := range limits {
		text := ""
		for _, a := range l.GetActions() {
			if text != "" {
				text += " "
			}
			switch {
			case a.GetRemoteAddress() != nil:
				text += "remote_address"
			case a.GetRequestHeaders() != nil:
				text += a.GetRequestHeaders().GetDescriptorKey()
			case a.GetGenericKey() != nil:
				text += a.GetGenericKey().GetDescriptorKey() + "=" + a.GetGenericKey().GetDescriptorValue()
			}
		}
		keys = append(keys, text)
	}
	return keys
}

func TestLimitsExample(t *testing.T) {
	text, err := os.ReadFile(examples + "envoy-limits/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const call = "remote_address=192.0.2.1"

	bubble(t, "as Envoy asks", func(t *testing.T) {
		e := start(t, set(), string(text), Options{})
		e.check("shop", []step{
			{list(call, "tenant=a", "path=/login?x=1 "+call, "tokens_of=a hits:0"),
				"OK | OK 300/MINUTE left 299 reset 1m0s | OK 1000/HOUR left 999 reset 1h6m0s | OK 5/10MINUTE left 4 reset 10m0s | OK 50000/DAY left 50000 reset 0s"},
			{list("path=/login?x=2 " + call), "OK | OK 5/10MINUTE left 3 reset 10m0s"},
			{list("tokens_of=a headgate=debit hits:60000"), "OK | OK 50000/DAY left 0 reset 24h0m0s"},
			{list("tenant=a", "tokens_of=a hits:0"),
				"OVER | OK 1000/HOUR left 999 reset 1h6m0s | OVER 50000/DAY left 0 reset 24h0m0s"},

			// The policy for the value "big" precedes the one for each tenant, and a path other
			// than /login has none.
			{list("tenant=big", "path=/ "+call), "OK | OK 100000/HOUR left 99999 reset 1h6m0s | OK"},
		})
	})
}
