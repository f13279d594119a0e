package failover

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

var _ core.Reporter = (*Store)(nil)

// Bans implements [core.Reporter]. It asks the primary: bans of the fallback are copies, or last
// as long as an outage does.
func (s *Store) Bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	lister, ok := s.primary.store.(core.Reporter)
	if !ok {
		return nil, fmt.Errorf("failover: a %T cannot list bans: %w", s.primary.store, errors.ErrUnsupported)
	}
	return lister.Bans(ctx, rules, most)
}
