package migrate

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/rewrite"
)

// Before release 0.4 the UUID of a Java action differed in every run of the job,
// so that one action can have several in a topic. Named alike, they become one,
// and with them the keys of an event that two runs worked on. Which keys those
// are shows only when both have been seen.
//
// A key group tells keys apart, too, and no target but that of release 0.4 has
// one: after the max parallelism of a job changed, one state has keys of two key
// groups. There, every key is looked at.
//
// So for every target key of such a kind it is remembered which source key
// became it: 24 bytes for each key and 4.4 to 6.7 of index. Where another one
// does, the target key is watched like the others (collision.go).
type meetings struct {
	shared map[uuid.UUID]bool // new UUIDs that several old ones become
	all    bool               // keys of all actions: those of the source have a key group
	prints fingerprinter

	mu   sync.Mutex
	seen keyTable[uint64] // digest of a source key, by target key
	keys map[string]bool  // target keys that several source keys become
}

// newMeetings is nil where no two keys can meet: neither do two actions have one
// name, nor do the source's keys have a key group.
func newMeetings(rules rewrite.Rules, prints fingerprinter) *meetings {
	m := &meetings{shared: map[uuid.UUID]bool{}, prints: prints, keys: map[string]bool{},
		all: rules.From == keycodec.KeyGroupFirst || rules.From == keycodec.KeyGroupLast}
	named := map[uuid.UUID]bool{}
	for _, action := range rules.Actions {
		if named[action] {
			m.shared[action] = true
		}
		named[action] = true
	}
	if len(m.shared) == 0 && !m.all {
		return nil
	}
	return m
}

// note takes down a record that goes to the target.
func (m *meetings) note(r *rewrite.Record, d *rewrite.Decision) {
	if m == nil || d.Parsed == nil || !m.all && !m.shared[d.Parsed.Action] {
		return
	}
	target, source := m.prints.of(d.Key), m.prints.of(r.Key)
	m.mu.Lock()
	defer m.mu.Unlock()
	first, isNew := m.seen.at(target)
	switch {
	case isNew:
		*first = source[0]
	case *first != source[0] && len(m.keys) <= mostClaims:
		m.keys[string(d.Key)] = true
	}
}

// watch watches the keys that met, unless known is watching them already.
func (m *meetings) watch(more, known *claims) error {
	if m == nil {
		return nil
	}
	if len(m.keys) > mostClaims {
		return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("more than %d target keys would stand for several source keys", mostClaims),
			Do: "check --from and --actions: are these really the same states? Settling so many one by one is more than a plan can hold"}
	}
	for key := range m.keys {
		if known.targets[key] == nil {
			more.watch(key)
		}
	}
	return nil
}

// rememberMeetings prepares the scan for keys that can meet. An extension
// has to know the keys of the captures before it.
func (pl *planner) rememberMeetings(ctx context.Context) error {
	pl.claims.met = newMeetings(pl.rules, pl.prints)
	if pl.claims.met == nil {
		return nil
	}
	earlier := pl.plan.Captures[:len(pl.plan.Captures)-1]
	for i := range earlier {
		err := pl.readAgain(ctx, "remember the keys so far", earlier[i].spans(), func() func(*rewrite.Record) error {
			decider := rewrite.NewDecider(pl.claims.rules)
			return func(r *rewrite.Record) error {
				d, err := decider.Decide(r, r.Offset)
				if err == nil && d.Action.OnTarget() {
					pl.claims.met.note(r, &d)
				}
				return err
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
