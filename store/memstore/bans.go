// This file lists bans.

package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
)

var _ core.BanLister = (*Store)(nil)

// Bans implements [core.BanLister]. It looks at every key, one shard at a time.
func (s *Store) Bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	var list []core.Banned
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list = s.shards[i].appendBans(list, rules, s.clock())
	}
	slices.SortFunc(list, core.Banned.Compare)
	return list[:min(len(list), max(0, most))], nil
}

// appendBans appends the bans of the shard's keys that have not ended.
func (h *shard) appendBans(list []core.Banned, rules []string, now int64) []core.Banned {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.exts {
		a := h.aside(i)
		if a == nil || a.Conduct.Strikes > 0 || a.Conduct.Until <= now {
			continue
		}
		if rule := h.classOf(i).rule; slices.Contains(rules, rule) {
			list = append(list, core.Banned{Rule: rule, Key: strings.Clone(h.keyOf(i)), Until: a.Conduct.Until})
		}
	}
	return list
}

// keyOf returns the key of slot i.
func (h *shard) keyOf(i int) string {
	if c := &h.slots[i]; c.size != long {
		return string(c.text[:c.size])
	}
	return h.exts[i].key
}
