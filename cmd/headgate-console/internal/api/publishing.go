package api

import (
	"net/http"
	"time"
)

type publishingView struct {
	Version     int64     `json:"version"`
	ChangedAt   time.Time `json:"changed_at,omitzero"`
	Published   int64     `json:"published"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	Pending     bool      `json:"pending"`
	Redis       bool      `json:"redis"` // whether there is a Redis to publish to
	Failures    int       `json:"failures"`
	FailedSince time.Time `json:"failed_since,omitzero"`

	// Foreign says why the published policies are not those of this database.
	Foreign string `json:"foreign,omitempty"`

	// Error may name hosts, so only administrators see it.
	Error string `json:"error,omitempty"`
}

func (c *call) publishing() error {
	p, err := c.o.Service.Publishing(c.ctx(), c.actor)
	if err != nil {
		return err
	}

	v := publishingView{
		Version: p.Version, ChangedAt: p.ChangedAt, Published: p.Published, PublishedAt: p.At,
		Pending: p.Published < p.Version || p.Overrides, Redis: c.o.Publishing != nil,
	}

	if c.o.Publishing == nil {
		return c.send(http.StatusOK, v)
	}

	// The database knows what was published, and the publisher why the rest was not.
	status := c.o.Publishing()
	v.Failures, v.FailedSince = status.Failures, status.Since
	if e := status.Foreign(); e != nil {
		v.Foreign = e.Reason()
	}

	access, err := c.access()
	if err != nil {
		return err
	}

	if status.Err != nil && access.CanManage() {
		v.Error = status.Err.Error()
	}

	return c.send(http.StatusOK, v)
}
