package prefetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

var _ core.BanLister = (*Store)(nil)

// Bans implements [core.BanLister]. It asks the store behind.
func (s *Store) Bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	lister, ok := s.store.(core.BanLister)
	if !ok {
		return nil, fmt.Errorf("prefetch: a %T cannot list bans: %w", s.store, errors.ErrUnsupported)
	}
	return lister.Bans(ctx, rules, most)
}
