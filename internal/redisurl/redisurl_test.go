package redisurl_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/internal/test/redistest"
)

func TestParseReadsEachForm(t *testing.T) {
	// An empty name with TLS stands for several hosts, each of which proves its own.
	for _, row := range []struct {
		url    string
		tls    string // the name that servers prove; "-" for no TLS
		expect redis.UniversalOptions
	}{
		{"redis://host", "-", redis.UniversalOptions{Addrs: []string{"host:6379"}}},
		{"redis://127.0.0.1:1/2", "-", redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, DB: 2}},
		{"redis://[::1]:1?db=2", "-", redis.UniversalOptions{Addrs: []string{"[::1]:1"}, DB: 2}},
		{"redis://[::1]", "-", redis.UniversalOptions{Addrs: []string{"[::1]:6379"}}},
		{"redis://u%40:p%2F%3A%25@host/", "-",
			redis.UniversalOptions{Addrs: []string{"host:6379"}, Username: "u@", Password: "p/:%"}},
		{"redis://:p@host?dial_timeout=2s&pool_size=7", "-",
			redis.UniversalOptions{Addrs: []string{"host:6379"}, Password: "p",
				DialTimeout: 2 * time.Second, PoolSize: 7}},

		// TLS proves the name of the host.
		{"rediss://host:1", "host", redis.UniversalOptions{Addrs: []string{"host:1"}}},

		// A socket's path is not a number of a database.
		{"unix://u:p@/run/redis.sock?db=3", "-", redis.UniversalOptions{Addrs: []string{"/run/redis.sock"},
			Username: "u", Password: "p", DB: 3}},

		// A password may stand for Redis, and another one for the sentinels.
		{"redis+sentinel://h1,h2:2,[::1]/main", "-",
			redis.UniversalOptions{Addrs: []string{"h1:26379", "h2:2", "[::1]:26379"}, MasterName: "main"}},
		{"redis+sentinel://u:p@h1/main/4?sentinel_username=su&sentinel_password=s%26p&addr=h2&read_timeout=1", "-",
			redis.UniversalOptions{
				Addrs: []string{"h1:26379", "h2:26379"}, MasterName: "main", DB: 4, Username: "u", Password: "p",
				SentinelUsername: "su", SentinelPassword: "s&p", ReadTimeout: time.Second}},
		{"rediss+sentinel://h1/main", "h1", redis.UniversalOptions{Addrs: []string{"h1:26379"}, MasterName: "main"}},
		{"rediss+sentinel://h1,h2/main", "",
			redis.UniversalOptions{Addrs: []string{"h1:26379", "h2:26379"}, MasterName: "main"}},

		{"redis+cluster://u:p@h1", "-",
			redis.UniversalOptions{Addrs: []string{"h1:6379"}, IsClusterMode: true, Username: "u", Password: "p"}},
		{"redis+cluster://h1:1,h2,h3:3?addr=h4&max_redirects=5", "-",
			redis.UniversalOptions{Addrs: []string{"h1:1", "h2:6379", "h3:3", "h4:6379"},
				IsClusterMode: true, MaxRedirects: 5}},
		{"rediss+cluster://h1", "h1", redis.UniversalOptions{Addrs: []string{"h1:6379"}, IsClusterMode: true}},
		{"rediss+cluster://h1,h2/", "",
			redis.UniversalOptions{Addrs: []string{"h1:6379", "h2:6379"}, IsClusterMode: true}},
	} {
		o, err := redisurl.Parse(row.url)
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}

		// Configs are not compared, so of TLS the name is looked at and then taken away.
		name := "-"
		if o.TLSConfig != nil {
			name, o.TLSConfig = o.TLSConfig.ServerName, nil
		}

		// Every form sets it: calls would not end by their deadlines otherwise.
		row.expect.ContextTimeoutEnabled = true
		if name != row.tls || !reflect.DeepEqual(*o, row.expect) {
			t.Errorf("%s: TLS %q\n%+v, want TLS %q\n%+v", row.url, name, *o, row.tls, row.expect)
		}
	}
}

func TestParseReportsEveryMistakeButNoSecret(t *testing.T) {
	for _, row := range []struct {
		url   string
		parts []string
	}{
		// A text of the user may show the secret in any place, also where it is not the password
		// yet.
		{"", []string{"redis://", "rediss+cluster://"}},
		{"s3cret", []string{"begins with none of"}},
		{"host:6379", []string{"begins with none of"}},
		{"http://u:s3cret@host", []string{"begins with none of"}},
		{"redisss://host", []string{"begins with none of"}},
		{"redis:/u:s3cret@host", []string{"begins with none of"}},

		// Hosts and ports.
		{"redis://", []string{"host 1 is not"}},
		{"redis://u:s3cret", []string{"host 1 is not"}},
		{"redis://:s3cret@", []string{"host 1 is not"}},
		{"redis://:s3cret@h:", []string{"host 1 is not"}},
		{"redis://:s3cret@h:0", []string{"host 1 is not"}},
		{"redis://:s3cret@h:65536", []string{"host 1 is not"}},
		{"redis://:s3cret@h:%zz", []string{"host 1 is not"}},
		{"redis://:s3cret@::1", []string{"host 1 is not"}},
		{"redis://:s3cret@h1,h2", []string{"several hosts"}},
		{"redis://:s3cret@h/x", []string{"its path"}},
		{"redis://:s3cret@h/-1", []string{"its path"}},
		{"redis://:s3cret@h/1/2", []string{"its path"}},
		{"redis://:s3cret@h?db=-1", []string{"db has no valid value"}},

		// Of a password with an unescaped character, a part would be taken for the host, the path
		// or the parameters.
		{"redis://u:s3cret%@h", []string{"percent"}},
		{"redis://u:p@s3cret@h", []string{"an @"}},
		{"redis://u:p/s3cret@h", []string{"an @"}},
		{"redis://u:p?s3cret@h", []string{"an @"}},
		{"redis://u:p#s3cret@h", []string{"an @"}},
		{"redis://u:p#s3cret", []string{"an @"}},

		// Parameters.
		{"redis://h?a;b", []string{"semicolon"}},
		{"redis://:s3cret@h/x?dial_timeout=x&pool_size=y&route_randomly=1&pool=1&db=1",
			[]string{"its path", "dial_timeout has no", "pool_size has no",
				"route_randomly would", `no parameter "pool"`}},
		{"redis://h?addr=h2", []string{`no parameter "addr"`}},

		// Each form has its own path.
		{"unix://h/path", []string{"names a host"}},
		{"unix://u:s3cret@", []string{"no path"}},
		{"unix:///", []string{"no path"}},
		{"redis+sentinel://h", []string{"its path"}},
		{"redis+sentinel://:s3cret@h/", []string{"its path"}},
		{"redis+sentinel://:s3cret@h/main/x/y", []string{"its path"}},
		{"redis+sentinel://:s3cret@h,,h:x/main", []string{"host 2 is not", "host 3 is not"}},
		{"redis+sentinel://h/main?sentinel_password=x&s3cret=1", []string{"an & of the password"}},
		{"redis+sentinel://h/main?master_name=x&password=s3cret&username=y&replica_only=1&use_disconnected_replicas=1",
			[]string{`"master_name"`, `"password"`, `"username"`,
				"replica_only would", "use_disconnected_replicas would"}},
		{"redis+cluster://:s3cret@h/1?read_only=1&route_by_latency=1&db=1",
			[]string{"its path", "read_only would", "route_by_latency would", `"db"`}},
	} {
		o, err := redisurl.Parse(row.url)
		if err == nil {
			t.Errorf("%q: %+v", row.url, o)
			continue
		}

		// The error is logged, so no mistake may show what was typed.
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error shows the secret: %v", row.url, err)
		}

		// All mistakes are reported, not the first one.
		for _, part := range row.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: no %q in: %v", row.url, part, err)
			}
		}
	}
}

// The options of a client are those that go-redis itself reads from the parameters.
func TestParseLosesNoParameter(t *testing.T) {
	// Each number differs, so that no parameter can stand in for another.
	common := "client_name=n&protocol=2&max_retries=1&min_retry_backoff=2s&max_retry_backoff=3s&dial_timeout=4s&read_timeout=5s&write_timeout=6s" +
		"&pool_fifo=1&pool_size=17&pool_timeout=7s&min_idle_conns=8&max_idle_conns=9&max_active_conns=10&max_concurrent_dials=11" +
		"&conn_max_idle_time=12s&conn_max_lifetime=13s&conn_max_lifetime_jitter=1s"

	dialer := "&dialer_retries=14&dialer_retry_timeout=15s"

	compare := func(url string, own func(*redis.UniversalOptions) any, theirs any, err error) {
		t.Helper()
		o, bad := redisurl.Parse(url)
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		if got := own(o); !reflect.DeepEqual(got, theirs) {
			t.Errorf("%s:\n%+v, want\n%+v", url, got, theirs)
		}
	}
	url := "rediss://u:p@h:1/2?skip_verify=1&" + common
	server, err := redis.ParseURL(url)

	server.Network, server.ContextTimeoutEnabled = "", true
	compare(url, func(o *redis.UniversalOptions) any { return o.Simple() }, server, err)

	query := common + dialer + "&skip_verify=true&identitySuffix=i&disableIdentity=true"
	sentinel, err := redis.ParseFailoverURL("rediss://su:sp@h:1/2?master_name=main&username=u&password=p&" + query)
	sentinel.ContextTimeoutEnabled = true
	compare("rediss+sentinel://u:p@h:1/main/2?sentinel_username=su&sentinel_password=sp&"+query,
		func(o *redis.UniversalOptions) any { return o.Failover() }, sentinel, err)

	query = common + dialer + "&max_redirects=16&failing_timeout_seconds=18"
	cluster, err := redis.ParseClusterURL("rediss://u:p@h:1?" + query)
	cluster.ContextTimeoutEnabled = true
	compare("rediss+cluster://u:p@h:1?"+query, func(o *redis.UniversalOptions) any { return o.Cluster() }, cluster, err)
}

func TestParseReachesServer(t *testing.T) {
	socket := t.TempDir() + "/s"
	s := redistest.Start(t, "--unixsocket", socket)
	reaches(t, "unix://"+socket)
	admin := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer admin.Close()
	if err := admin.Do(t.Context(), "acl", "setuser",
		"u", "on", ">p@ss/word", "allkeys", "allcommands").Err(); err != nil {
		t.Fatal(err)
	}
	reaches(t, "redis://u:p%40ss%2Fword@"+s.Addr+"/3")
	_, addr, _ := redistest.TLS(t)
	reaches(t, "rediss://"+addr+"?skip_verify=true")
}

func TestParseReachesSentinelAndCluster(t *testing.T) {
	watched := redistest.Sentinel(t)
	reaches(t, "redis+sentinel://127.0.0.1:1,"+strings.Join(redistest.Addrs(watched.Sentinels), ",")+
		"/"+redistest.MasterName+"/1")
	reaches(t, "redis+cluster://"+strings.Join(redistest.Addrs(redistest.Cluster(t, 3)), ","))
}

// reaches has a client write and read many keys, which lie on all nodes of a cluster.
func reaches(t *testing.T, url string) {
	t.Helper()
	o, err := redisurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, key := range strings.Fields("a b c d e f g h") {
		if err := client.Set(ctx, key, "x", 0).Err(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
