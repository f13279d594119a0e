package api

import (
	"encoding/base64"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/server"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

type topKey struct {
	Key       string    `json:"key"`
	Bytes     string    `json:"bytes" doc:"A key that is not UTF-8, in base64. Key is empty then."`
	Shortened bool      `json:"shortened" doc:"Only its beginning and a digest are known."`
	Count     int64     `json:"count" doc:"At most."`
	Least     int64     `json:"least"`
	Since     time.Time `json:"since"`
}

type topList struct {
	Total int64     `json:"total" doc:"The requests of all keys."`
	Floor int64     `json:"floor" doc:"How often any other key may have come."`
	From  time.Time `json:"from,omitzero" doc:"Absent if no request was counted."`
	To    time.Time `json:"to,omitzero"`
	Keys  []topKey  `json:"keys"`
}

type topPolicy struct {
	Policy   string  `json:"policy"`
	Refused  topList `json:"refused"`
	Admitted topList `json:"admitted"`
}

type top struct {
	Instances int         `json:"instances"`
	Unread    int         `json:"unread" doc:"Instances whose keys could not be read."`
	Policies  []topPolicy `json:"policies"`
}

func topKeyOf(k topkeys.Key) topKey {
	v := topKey{Key: k.Key, Shortened: service.IsShortened(k.Key), Count: k.Count, Least: k.Least(), Since: k.Since}
	if !utf8.ValidString(k.Key) {
		v.Key, v.Bytes = "", base64.StdEncoding.EncodeToString([]byte(k.Key))
	}
	return v
}

func topListOf(s topkeys.Summary) topList {
	return topList{s.Total, s.Floor, s.From, s.To, mapped(s.Keys, topKeyOf)}
}

// top answers with the keys that an application refuses and admits most.
func (c *call) top(*none) (top, error) {
	t, err := c.o.Service.Top(c.ctx(), c.actor, c.path("app"))
	return top{t.Instances, t.Unread, mapped(t.Rules, func(r topkeys.Rule) topPolicy {
		return topPolicy{r.Rule, topListOf(r.Refused), topListOf(r.Admitted)}
	})}, c.fleetErr("top keys", err)
}

type instance struct {
	policy.Instance
	AgeMS         int64 `json:"age_ms" doc:"Of this report."`
	ClockOffsetMS int64 `json:"clock_offset_ms" doc:"How far its clock is ahead of that of Redis."`
}

type instanceList struct {
	Instances []instance `json:"instances"`
}

func (c *call) instances(*none) (instanceList, error) {
	all, err := c.o.Service.Instances(c.ctx(), c.actor, "")
	return instanceList{mapped(all, func(i policy.Instance) instance {
		return instance{i, i.Age.Milliseconds(), i.ClockOffset.Milliseconds()}
	})}, c.fleetErr("instances", err)
}

// fleetErr returns the error for the client of a method of the service that asks Redis.
func (c *call) fleetErr(what string, err error) error {
	switch {
	case err == service.ErrNoFleet:
		return away("the console was started without Redis, so there are no " + what)
	case errors.Is(err, service.ErrNoFleet):
		return c.redisAway(what, err)
	}
	return err
}

// redisAway logs the error of Redis, and returns the one for the client.
func (c *call) redisAway(what string, err error) error {
	c.o.Logger.WarnContext(c.ctx(), "Redis did not answer", "asked_for", what, "error", err)
	return away("Redis did not answer")
}

type publishing struct {
	Version     int64     `json:"version" doc:"Of the set of policies in the database."`
	ChangedAt   time.Time `json:"changed_at,omitzero"`
	Published   int64     `json:"published" doc:"The version that was published last."`
	PublishedAt time.Time `json:"published_at,omitzero"`
	Pending     bool      `json:"pending"`
	Redis       bool      `json:"redis" doc:"There is a Redis to publish to."`
	Failures    int       `json:"failures"`
	FailedSince time.Time `json:"failed_since,omitzero"`
	Foreign     string    `json:"foreign,omitempty" doc:"Why Redis has the policies of another database."`
	Error       string    `json:"error,omitempty" doc:"It may name hosts, so only administrators who logged in see it."`
}

func (c *call) publishing(*none) (v publishing, err error) {
	p, err := c.o.Service.Publishing(c.ctx(), c.actor)
	if err != nil {
		return v, err
	}
	v = publishing{
		Version: p.Version, ChangedAt: p.ChangedAt, Published: p.Published, PublishedAt: p.At,
		Pending: p.Published < p.Version || p.Overrides, Redis: c.o.Publishing != nil,
	}
	if !v.Redis {
		return v, nil
	}

	// The database knows what was published, and the publisher why the rest was not.
	status := c.o.Publishing()
	v.Failures, v.FailedSince = status.Failures, status.Since
	if e := status.Foreign(); e != nil {
		v.Pending, v.Foreign = true, e.Reason() // what the database has, also without a change
	}

	access, err := c.access()
	if err == nil && status.Err != nil && access.CanManage() {
		v.Error = status.Err.Error()
	}
	return v, err
}

// backup answers with a backup of the database. It is an answer to POST, which is not compressed.
func (c *call) backup(*none) error {
	f, err := c.o.Service.BackupByToken(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	defer f.Close()
	return server.SendBackup(c.w, f.File, c.o.Clock())
}
