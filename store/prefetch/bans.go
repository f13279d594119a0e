package prefetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

var _ core.Reporter = (*Store)(nil)

// Bans implements [core.Reporter]. It asks the store behind.
func (s *Store) Bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	lister, ok := s.store.(core.Reporter)
	if !ok {
		return nil, fmt.Errorf("prefetch: a %T cannot list bans: %w", s.store, errors.ErrUnsupported)
	}
	return lister.Bans(ctx, rules, most)
}
