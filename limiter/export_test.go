package limiter

// RememberedOverrides is how many limits of the first rule's Override are kept.
func (l *Limiter) RememberedOverrides() int { return len(*l.set.Load().rules[0].others.Load()) }

// Renewing reports whether the timer that renews leases still runs.
func (a *Admission) Renewing() bool {
	a.renewal.mu.Lock()
	defer a.renewal.mu.Unlock()
	return a.renewal.timer != nil
}

// CheckingSetup reports whether requests are examined for mistakes in the set-up.
func (l *Limiter) CheckingSetup() bool { return l.set.Load().setup.On() }

// AwaitReleases waits until no call is in progress in the background. No call may begin
// meanwhile.
func (l *Limiter) AwaitReleases() {
	if l.background == nil || l.isClosed() {
		return
	}
	for range maxBackground {
		l.background.slots <- struct{}{}
	}
	for range maxBackground {
		<-l.background.slots
	}
}

// Lines is how many keys have a line.
func (l *Limiter) Lines() int { return l.queue.Lines() }
