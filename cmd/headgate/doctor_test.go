package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// report is what the doctor says in JSON.
type report struct {
	Findings           []diagnosis
	Failures, Warnings int
}

// of returns the finding of a check, of the first server.
func (r *report) of(t *testing.T, check string) diagnosis {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(d diagnosis) bool { return d.Check == check })
	if i < 0 {
		t.Fatalf("nothing is said of %s: %+v", check, r.Findings)
	}
	return r.Findings[i]
}

// want fails unless the check has the level and says the text.
func (r *report) want(t *testing.T, check, level, text string) {
	t.Helper()
	if d := r.of(t, check); d.Level != level || !strings.Contains(d.Text, text) {
		t.Errorf("%s: %s: %s, want %s: %s", d.Level, check, d.Text, level, text)
	}
}

// doctor examines the Redis of the URL. A failure is the exit code 1, and none is 0.
func examination(t *testing.T, url string, args ...string) *report {
	t.Helper()
	got := call(t, "", append([]string{"doctor", "-json", "-redis", url}, args...)...)
	var r report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %s%s", err, got.out, got.err)
	}
	if want := min(1, r.Failures); got.code != want || got.err != "" {
		t.Errorf("exit code %d, want %d: %s", got.code, want, got.err)
	}
	return &r
}

// direct returns a client of a server.
func direct(t *testing.T, s *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

func set(t *testing.T, c *redis.Client, name, value string) {
	t.Helper()
	if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorOfAServer(t *testing.T) {
	server := redistest.Start(t)
	c := direct(t, server)
	r := examination(t, "redis://"+server.Addr)
	for _, check := range strings.Fields("reach permissions memory replicas persistence clock scripts") {
		r.want(t, check, levelOK, "")
	}
	r.want(t, "distance", r.of(t, "distance").Level, "a round trip takes ") // which a busy machine makes long

	// What it has written is gone in a second: -1 is a key that stays.
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if left := c.PTTL(t.Context(), key).Val(); left == -1 || left > time.Second {
			t.Errorf("%s stays for %s", key, left)
		}
	}

	// The text has a line for each finding, and their numbers.
	got := call(t, "", "doctor", "-redis", "redis://"+server.Addr).want(t, fine, "ok   memory: noeviction, ", "0 "+
		"failures, ")
	if n := strings.Count(got.out, "\n"); n != len(r.Findings)+1 {
		t.Errorf("%d lines for %d findings:\n%s", n, len(r.Findings), got.out)
	}
	call(t, "", "doctor", "-redis", "redis://"+server.Addr, "all").want(t, usage, `"all" is no flag`)
}

func TestDoctorOfARedisThatIsAway(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	r := examination(t, "redis://"+server.Addr)
	r.want(t, "reach", levelFail, "it cannot be reached: dial tcp "+server.Addr)
	if len(r.Findings) != 1 {
		t.Errorf("%+v", r.Findings)
	}
	call(t, "", "doctor", "-redis", "nothing").want(t, usage, "-redis: the URL of Redis begins with")
}

// A user who lacks permissions gets the command that grants them, after which nothing is missing.
func TestDoctorNamesMissingPermissions(t *testing.T) {
	server := redistest.Start(t)
	c := direct(t, server)

	acl := func(args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), append([]any{"ACL", "SETUSER", "svc"}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("on", ">s3cret", "~shop:*", "&shop:*", "+eval", "+evalsha", "+get", "+set", "+time", "+info", "+ping",
		"+hset",
		"+exists")

	url := "redis://svc:s3cret@" + server.Addr
	r := examination(t, url, "-prefix", "shop:")
	r.want(t, "permissions", levelFail, "the user may not run mget, del, pttl, pexpire, zadd, zremrangebyscore, "+
		"zremrangebyrank, zrevrangebyscore, getrange, zrem, zcard, hget, hmget, hincrby, hdel, zrangebyscore, "+
		"hexists, hgetall, hscan, llen, lindex, lrange, "+
		"multi and exec, subscribe on keys of the prefix shop:; this command grants what is needed: ACL SETUSER "+
		"svc ~shop:* ")
	if strings.Contains(r.of(t, "permissions").Text, "s3cret") {
		t.Error("the password is shown")
	}

	// The command is carried out as it is printed.
	_, line, _ := strings.Cut(r.of(t, "permissions").Text, "ACL SETUSER svc ")
	var grants []any
	for _, word := range strings.Fields(line) {
		grants = append(grants, word)
	}

	acl(grants...)
	r = examination(t, url, "-prefix", "shop:")
	r.want(t, "permissions", levelOK, "under the prefix shop:")
	r.want(t, "scripts", levelOK, "")

	// Another prefix is not the user's.
	examination(t, url, "-prefix", "other:").want(t, "permissions", levelFail, "the user may not run get, mget, ")
	acl("-eval")
	examination(t, url, "-prefix", "shop:").want(t, "permissions", levelFail, "the user may not run eval on keys")
}

func TestDoctorFindsServersThatEvict(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	c, url := direct(t, server), "redis://"+server.Addr
	examination(t, url).want(t, "memory", levelFail, "maxmemory-policy is allkeys-lru: when 105 MB are full it "+
		"evicts keys")

	// Keys of limits expire, so they are those that volatile policies evict.
	set(t, c, "maxmemory-policy", "volatile-ttl")
	examination(t, url).want(t, "memory", levelFail, "maxmemory-policy is volatile-ttl")
	set(t, c, "maxmemory", "0")
	examination(t, url).want(t, "memory", levelWarn, "evicts nothing only as maxmemory is 0")

	// A full memory, which scripts of limits may still write.
	set(t, c, "maxmemory-policy", "noeviction")
	set(t, c, "maxmemory", "1mb")
	r := examination(t, url)
	r.want(t, "memory", levelWarn, "of 1.05 MB are in use")
	r.want(t, "scripts", levelOK, "")
}

func TestDoctorOfReplicasAndPersistence(t *testing.T) {
	watched := redistest.Sentinel(t)
	watched.Keep(t)
	addrs := redistest.Addrs(watched.Sentinels)
	r := examination(t, "redis+sentinel://"+strings.Join(addrs, ",")+"/"+redistest.MasterName)
	r.want(t, "reach", levelOK, "3 of 3 sentinels name one master")
	r.want(t, "replicas", levelOK, "1 replica, none more than 2s behind")
	examination(t, "redis://"+watched.Replica.Addr).want(t, "replicas", levelFail, "it is a replica")

	// The master asks for two replicas, and has one.
	master := direct(t, watched.Master)
	set(t, master, "min-replicas-to-write", "2")

	r = examination(t, "redis://"+watched.Master.Addr)
	r.want(t, "replicas", levelFail, "min-replicas-to-write is 2, and 1 are good: it refuses all writes")
	r.want(t, "scripts", levelFail, "a request cannot be decided: ")
	set(t, master, "min-replicas-to-write", "0")

	// Of three sentinels one is gone.
	watched.Sentinels[2].Kill()
	r = examination(t, "redis+sentinel://"+strings.Join(addrs, ",")+"/"+redistest.MasterName)
	r.want(t, "reach", levelWarn, "the sentinel "+addrs[2]+" does not know the master: ")
	if d := r.Findings[1]; d.Text != "2 of 3 sentinels name one master" {
		t.Errorf("%+v", d)
	}

	// What is on disk.
	set(t, master, "save", "3600 1")
	examination(t, "redis://"+watched.Master.Addr).want(t, "persistence", levelOK, "snapshots alone")
	set(t, master, "appendonly", "yes")
	examination(t, "redis://"+watched.Master.Addr).want(t, "persistence", levelOK, "an append-only file")
}

// Facts that a server says of itself, which a test cannot bring about.
func TestDoctorReadsInfo(t *testing.T) {
	server := redistest.Start(t)
	c := direct(t, server)
	for _, row := range []struct {
		check              func(*doctor, *examined)
		info, level, wants string
	}{
		{(*doctor).version, "redis_version:8.2.2", levelOK, "Redis 8.2.2, without CVE-2025-49844"},
		{(*doctor).version, "redis_version:6.2.20", levelWarn, "Redis 6.2.20 refuses all writes when its memory is " +
			"full"},
		{(*doctor).version, "redis_version:7.2.4\nvalkey_version:8.0.1", levelWarn, "Valkey 8.0.1 has " +
			"CVE-2025-49844"},
		{(*doctor).version, "redis_version:7.2.4\nvalkey_version:8.1.4", levelOK, "Valkey 8.1.4"},
		{(*doctor).version, "redis_version:of the cloud", levelWarn, "Redis of the cloud is no version that is " +
			"known"},
		{(*doctor).version, "", levelWarn, "does not say its version"},
		{(*doctor).memory, "", levelWarn, "does not say whether it evicts"},
		{(*doctor).checkReplicas, "", levelWarn, "does not say whether it has replicas"},
		{(*doctor).checkReplicas, "role:master\nconnected_slaves:1\n" +
			"slave0:ip=127.0.0.1,port=7,state=online,offset=9,lag=2", levelOK, "1 replica, none more than 2s behind"},
		{(*doctor).checkReplicas, "role:master\nconnected_slaves:2\nslave0:ip=127.0.0.1,port=7,state=online,lag=3\n" +
			"slave1:ip=127.0.0.1,port=8,state=wait_bgsave,lag=0", levelWarn,
			"127.0.0.1:7 is online and confirmed 3s ago, 127.0.0.1:8 is wait_bgsave and confirmed 0s ago: a " +
				"failover"},
		{(*doctor).checkPersistence, "", levelWarn, "does not say what it keeps on disk"},
		{(*doctor).checkPersistence, "aof_enabled:0\nrdb_last_bgsave_status:err", levelFail, "the last snapshot on " +
			"disk failed"},
		{(*doctor).checkPersistence, "aof_enabled:1\naof_last_write_status:err", levelFail, "append-only file " +
			"failed"},
	} {
		d := &doctor{flags: &redisFlags{prefix: "hg:"}}
		row.check(d, &examined{addr: server.Addr, client: c, info: infoOf(row.info)})
		if len(d.found) != 1 || d.found[0].Level != row.level || !strings.Contains(d.found[0].Text, row.wants) {
			t.Errorf("%q: %+v, want %s: %s", row.info, d.found, row.level, row.wants)
		}
	}

	// Policies that only this server has would be gone.
	s := newSystem(t, "redis://"+server.Addr)
	s.publish(systemPolicies)
	examination(t, s.url, "-prefix", s.prefix).want(t, "persistence", levelWarn, "and the policies that are "+
		"published here")
}

func (d *doctor) checkReplicas(e *examined)    { d.replicas(context.Background(), e) }
func (d *doctor) checkPersistence(e *examined) { d.persistence(context.Background(), e) }

func TestDoctorOfAClusterWithoutASlot(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	url := "redis+cluster://" + strings.Join(redistest.Addrs(nodes), ",")
	r := examination(t, url)
	r.want(t, "reach", levelOK, "a Cluster of 3 masters")
	r.want(t, "slots", levelWarn, "all have a server; cluster-require-full-coverage is yes")

	// Each server is examined, and named.
	servers := map[string]int{}
	for _, d := range r.Findings {
		servers[d.Server]++
	}
	for _, node := range nodes {
		if servers[node.Addr] != 7 {
			t.Errorf("%d findings about %s: %+v", servers[node.Addr], node.Addr, r.Findings)
		}
	}

	// Without one slot no key is counted, or the keys of others are.
	for _, node := range nodes {
		if err := direct(t, node).ClusterDelSlots(t.Context(), 100).Err(); err != nil {
			t.Fatal(err)
		}
	}
	inState(t, nodes, "fail")
	r = examination(t, url)
	r.want(t, "slots", levelFail, "the state of the Cluster is fail, and 16383 of 16384 slots have a server that "+
		"answers")
	r.want(t, "scripts", levelFail, "a request cannot be decided: ")

	for _, node := range nodes {
		set(t, direct(t, node), "cluster-require-full-coverage", "no")
	}
	inState(t, nodes, "ok")
	examination(t, url).want(t, "slots", levelFail, "16383 of 16384 slots have a server that answers: the keys of "+
		"the others")
}

// inState waits until every server says that the Cluster is in the state.
func inState(t *testing.T, nodes []*redistest.Server, state string) {
	t.Helper()
	for _, node := range nodes {
		c := direct(t, node)
		for !strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:"+state) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestDistanceIsJudgedByTheTimeOfACall(t *testing.T) {
	const ms = time.Millisecond
	for middle, want := range map[time.Duration]string{
		25 * ms: levelOK, 26 * ms: levelWarn, 83 * ms: levelWarn, 84 * ms: levelFail,
	} {
		if level, text := judged(middle, time.Second); level != want {
			t.Errorf("%s: %s: %s, want %s", middle, level, text, want)
		}
	}
}

func TestVersionsWithTheHole(t *testing.T) {
	for text, want := range map[string]bool{
		"Redis 6.0.20": true, "Redis 6.2.19": true, "Redis 6.2.20": false, "Redis 7.0.15": true, "Redis 7.2.10": true,
		"Redis 7.2.11": false, "Redis 7.4.5": true, "Redis 7.4.6": false, "Redis 7.9.224": true, "Redis 8.0.3": true,
		"Redis 8.0.4": false, "Redis 8.2.1": true, "Redis 8.2.2": false, "Redis 8.4.0": false, "Redis 9.0.0": false,
		"Valkey 7.2.10": true, "Valkey 7.2.11": false, "Valkey 8.0.5": true, "Valkey 8.0.6": false,
		"Valkey 8.1.3": true, "Valkey 8.1.4": false, "Valkey 9.0.0": false,
	} {
		name, number, _ := strings.Cut(text, " ")
		v, ok := parseVersion(number)
		if !ok || v.String() != number || hasHole(name, v) != want {
			t.Errorf("%s: %v %t, want %t", text, v, hasHole(name, v), want)
		}
	}
	for _, text := range []string{"", "7", "7.4", "7.4.x", "7.4.-1", "7.4.1.2", "99999999999.1.1"} {
		if v, ok := parseVersion(text); ok {
			t.Errorf("%q is the version %s", text, v)
		}
	}
}

// Every page and heading that a finding names is there.
func TestDoctorNamesPagesThatAreThere(t *testing.T) {
	named := 0
	for _, file := range []string{"doctor.go", "checks.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range regexp.MustCompile(`"docs/([a-z]+\.md)#([a-z-]+)"`).FindAllStringSubmatch(string(text),
			-1) {
			page, err := os.ReadFile(filepath.Join("../../docs", at[1]))
			if err != nil {
				t.Fatal(err)
			}

			// The anchor of a heading is its text in lower case, with dashes.
			headings := strings.ReplaceAll(strings.ToLower(string(page)), " ", "-")
			if !strings.Contains(headings, "\n##-"+at[2]+"\n") {
				t.Errorf("%s names %s", file, at[0])
			}
			named++
		}
	}
	if named < 10 {
		t.Errorf("%d pages are named", named)
	}
}
