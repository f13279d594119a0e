package redissource

import "context"

// Notify implements [policy.Notifier]. The client reconnects by itself if the
// connection is lost.
func (s *Source) Notify(ctx context.Context, wake func()) {
	p := s.client.Subscribe(ctx, s.channel)
	defer p.Close()
	messages := p.Channel()

	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-messages:
			if !open {
				return
			}
			wake()
		}
	}
}
