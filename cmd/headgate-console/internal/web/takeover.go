package web

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// maxLost is how many names of policies a take-over lists.
const maxLost = 50

// takeoverPage asks before the policies of this database replace those of another one.
func takeoverPage(r *request) error {
	t, err := r.takeover()
	if err != nil {
		return err
	}
	if t.Version == "" {
		return r.seeOther("/", "")
	}
	return r.confirm(confirmation{
		Title: "Publish the policies of this database over those in Redis?", Consequences: whatIsLost(t),
		Action: "/takeover", Fields: []hidden{{"version", publish.Digest(t.Version)}},
		Button: "Take over", Danger: !t.Keeps(), Back: "/",
	})
}

// takeOver has the policies published over those that the user has seen, and over no others.
func takeOver(r *request) error {
	t, err := r.takeover()
	if err != nil {
		return err
	}
	if !r.confirmed() || t.Version == "" || publish.Digest(t.Version) != r.field("version") {
		return takeoverPage(r)
	}

	what := strings.Join(whatIsLost(t), " ")
	return after(r.Service.TakeOver(r.req.Context(), r.actor, t.Version, what), nil, r.to("/", "takeover"))
}

// takeover returns what a take-over would replace, or nothing if the policies in Redis are those
// of this database. Only administrators learn it.
func (r *request) takeover() (publish.Takeover, error) {
	if !r.access.CanManage() {
		return publish.Takeover{}, r.Service.Refuse(r.req.Context(), r.actor, "publishing.takeover", "publishing",
			"it takes an administrator")
	}
	if r.Publishing == nil || r.Takeover == nil {
		return publish.Takeover{}, service.ErrNotFound
	}
	if r.Publishing().Foreign() == nil {
		return publish.Takeover{}, nil
	}
	return r.Takeover(r.req.Context())
}

// whatIsLost says what becomes of the published policies.
func whatIsLost(t publish.Takeover) (texts []string) {
	if t.Unknown {
		return []string{"The policies in Redis cannot be read here, and are lost: " +
			"a newer console, or another program, may have published them."}
	}
	if len(t.Gone) > 0 {
		texts = append(texts, fmt.Sprintf("%s in Redis and not in this database, and will not apply any more: %s.",
			plural(int64(len(t.Gone)), "policy is", "policies are"), firstOf(t.Gone, maxLost)))
	}
	if len(t.Changed) > 0 {
		texts = append(texts, fmt.Sprintf("%s otherwise in this database, and will apply as they are here: %s.",
			plural(int64(len(t.Changed)), "policy is", "policies are"), firstOf(t.Changed, maxLost)))
	}
	if texts == nil {
		texts = []string{"This database has all policies that are in Redis, as they are there: none is lost."}
	}
	return append(texts, "A console of the other database is refused from then on, and says so. "+
		"A backup that was restored, and a database that was moved, take over in this way.")
}
