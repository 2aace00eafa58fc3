package migrate

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
	"rekey/statevalue"
)

// Values of --on-collision.
const (
	OnCollisionFail   = "fail"   // apply refuses
	OnCollisionLatest = "latest" // the source key with the latest record is kept
)

// Which source keys can become one target key?
//
// Two keys that parse cannot: a source format reads no two keys alike, and a
// target format writes no two alike. So one of them was rewritten by a repair,
// or carried over as it is and happens to be a key of the target's format. Only
// the target keys of those are watched; without any, nothing is looked up.
//
// The exception are keys that a target does not tell apart: of actions that have
// one name for release 0.4, and of two key groups. See meetings.go.

// claim is a target key that is watched, with the source keys that become it.
type claim struct {
	Target string     `json:"target_base64"`
	Keys   []claimant `json:"keys"` // in order of the key
}

// claimant is a source key of a claim, as far as the captures go.
type claimant struct {
	Key      string          `json:"key_base64"`
	Records  int64           `json:"records"`
	First    report.Position `json:"first"`
	LastBy   []lastRecord    `json:"last_by_partition"` // by partition
	GivesWay bool            `json:"gives_way,omitempty"`
}

// lastRecord is the last record of a key in one source partition.
type lastRecord struct {
	Partition   int32 `json:"partition"`
	Offset      int64 `json:"offset"`
	TimestampMS int64 `json:"timestamp_ms"`
	Completed   bool  `json:"completed,omitempty"` // its state; looked at for release 0.4 alone
}

// later compares by position within a partition and by time across partitions.
func (l lastRecord) later(o lastRecord) bool {
	if l.Partition == o.Partition {
		return l.Offset > o.Offset
	}
	return cmp.Or(cmp.Compare(l.TimestampMS, o.TimestampMS), cmp.Compare(l.Partition, o.Partition)) > 0
}

func (c *claimant) last() lastRecord {
	last := c.LastBy[0]
	for _, l := range c.LastBy[1:] {
		if l.later(last) {
			last = l
		}
	}
	return last
}

// beats says whether a key is to be kept rather than another one: that of a
// completed state, whose action must not run again, or else the latest.
func (c *claimant) beats(o *claimant) bool {
	mine, other := c.last(), o.last()
	if mine.Completed != other.Completed {
		return mine.Completed
	}
	return mine.later(other)
}

// mostClaims bounds the copied keys that are watched, and with them plan.json.
const mostClaims = 100_000

// claims watches target keys. Which ones is fixed before a scan, so that
// looking one up takes no lock.
type claims struct {
	rules   rewrite.Rules // without what leaves out records
	targets map[string]map[string]*claimant
	mu      sync.Mutex // of what targets hold
	met     *meetings  // of keys that the target does not tell apart, or nil
}

// newClaims watches the target keys that the repairs of a plan make, and those
// that its captures so far have watched.
func newClaims(rules rewrite.Rules, earlier []claim) (*claims, error) {
	c := &claims{rules: rules.WholeHistory(), targets: map[string]map[string]*claimant{}}
	c.rules.Losers = nil
	for source, repair := range rules.Repairs {
		switch repair.Action {
		case rewrite.RepairRewrite:
			target, err := rules.To.Append(nil, &repair.Key)
			if err != nil {
				return nil, fmt.Errorf("encode a repaired key as %s: %w", rules.To.Name(), err)
			}
			c.watch(string(target))
		case rewrite.RepairCopy:
			if c.couldMeet([]byte(source)) {
				c.watch(source)
			}
		}
	}
	for _, known := range earlier {
		target, err := base64.StdEncoding.DecodeString(known.Target)
		if err != nil {
			return nil, fmt.Errorf("a claim of the plan: %w", err)
		}
		keys := c.watch(string(target))
		for _, k := range known.Keys {
			if len(k.LastBy) == 0 {
				return nil, errors.New("a claim of the plan names no record")
			}
			source, err := base64.StdEncoding.DecodeString(k.Key)
			if err != nil {
				return nil, fmt.Errorf("a claim of the plan: %w", err)
			}
			keys[string(source)] = &k
		}
	}
	return c, nil
}

func (c *claims) watch(target string) map[string]*claimant {
	if c.targets[target] == nil {
		c.targets[target] = map[string]*claimant{}
	}
	return c.targets[target]
}

// couldMeet says whether a key that is copied as it is may be what another key
// becomes.
func (c *claims) couldMeet(key []byte) bool {
	return c.rules.To.Parse(new(keycodec.Key), key) == nil
}

// watcher notes the records of watched keys. Each goroutine needs its own.
type watcher struct {
	*claims
	decider *rewrite.Decider
}

func (c *claims) watcher() watcher { return watcher{c, rewrite.NewDecider(c.rules)} }

// note takes down a record if its target key is watched.
func (w watcher) note(r *rewrite.Record) error {
	if len(w.targets) == 0 && w.met == nil {
		return nil
	}
	d, err := w.decider.Decide(r, r.Offset)
	if err != nil || !d.Action.OnTarget() {
		return err
	}
	w.met.note(r, &d)
	keys, watched := w.targets[string(d.Key)]
	if !watched {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := keys[string(r.Key)]
	if k == nil {
		k = &claimant{Key: base64.StdEncoding.EncodeToString(r.Key), First: report.Position{Partition: r.Partition, Offset: r.Offset}}
		keys[string(r.Key)] = k
	}
	k.Records++
	if before(r.Partition, r.Offset, k.First.Partition, k.First.Offset) {
		k.First = report.Position{Partition: r.Partition, Offset: r.Offset}
	}
	last := lastRecord{Partition: r.Partition, Offset: r.Offset, TimestampMS: r.Timestamp}
	if w.rules.OnIncompatible != "" {
		last.Completed = statevalue.Look(r.Value).Completed
	}
	at, found := slices.BinarySearchFunc(k.LastBy, last, func(a, b lastRecord) int { return cmp.Compare(a.Partition, b.Partition) })
	if found {
		k.LastBy[at] = last
	} else {
		k.LastBy = slices.Insert(k.LastBy, at, last)
	}
	return nil
}

// watchMore watches the target keys that are known to be in question only after
// a scan. The records of all captures are looked at once more for these few.
func (pl *planner) watchMore(ctx context.Context, c *claims, bad *badKeys) error {
	more, err := newClaims(rewrite.Rules{}, nil)
	if err != nil {
		return err
	}
	more.rules = c.rules
	if err := pl.watchCopies(more, c, bad); err != nil {
		return err
	}
	if err := c.met.watch(more, c); err != nil || len(more.targets) == 0 {
		return err
	}
	for i := range pl.plan.Captures {
		if err := pl.readAgain(ctx, "look for collisions", pl.plan.Captures[i].spans(), func() func(*rewrite.Record) error { return more.watcher().note }); err != nil {
			return err
		}
	}
	maps.Copy(c.targets, more.targets)
	return nil
}

// watchCopies finds the keys that the policy copies and that could meet another
// key.
func (pl *planner) watchCopies(more, c *claims, bad *badKeys) error {
	if pl.rules.OnUnparseable != rewrite.PolicyCopy {
		return nil
	}
	return bad.each(func(key []byte, _ *badKeyStats) error {
		if !pl.rules.Copies(key) || !c.couldMeet(key) || c.targets[string(key)] != nil {
			return nil
		}
		more.watch(string(key))
		if len(more.targets) > mostClaims {
			return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("more than %d keys that would be copied as they are have the target's format %s already", mostClaims, pl.rules.To.Name()),
				Do: "whether they meet other keys cannot be checked for so many: use --on-unparseable quarantine, or check --from and --source"}
		}
		return nil
	})
}

// readAgain reads spans of the source for their keys. Each span gets a function
// of its own.
func (pl *planner) readAgain(ctx context.Context, phase string, spans []Span, each func() func(*rewrite.Record) error) error {
	reader := pl.reader()
	count := &counter{progress: pl.env.Progress}
	var positions int64
	for _, span := range spans {
		positions += span.To - span.From
	}
	pl.env.Progress.Phase(phase, positions)
	defer pl.env.Progress.Done()
	return eachSpan(ctx, pl.env.budget().readers, spans, func(ctx context.Context, span Span) error {
		fn := each()
		position := span.From
		_, err := reader.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				if err := fn(&records[i]); err != nil {
					return err
				}
			}
			count.add(records[len(records)-1].Offset + 1 - position)
			position = records[len(records)-1].Offset + 1
			return nil
		})
		count.add(span.To - position)
		return err
	})
}

// settle says which key of each collision is kept, and gives the claims as a
// plan holds them. Without latest, nothing gives way.
func (c *claims) settle(latest bool) []claim {
	var out []claim
	for target, byKey := range c.targets {
		if len(byKey) == 0 {
			continue
		}
		keys := slices.SortedFunc(maps.Values(byKey), func(a, b *claimant) int { return cmp.Compare(a.Key, b.Key) })
		winner := keys[0]
		for _, k := range keys[1:] {
			if k.beats(winner) {
				winner = k
			}
		}
		sealed := claim{Target: base64.StdEncoding.EncodeToString([]byte(target))}
		for _, k := range keys {
			k.GivesWay = latest && k != winner
			sealed.Keys = append(sealed.Keys, *k)
		}
		out = append(out, sealed)
	}
	slices.SortFunc(out, func(a, b claim) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// losers are the source keys that give way.
func losers(settled []claim) (map[string]bool, error) {
	var out map[string]bool
	for _, c := range settled {
		for _, k := range c.Keys {
			if !k.GivesWay {
				continue
			}
			key, err := base64.StdEncoding.DecodeString(k.Key)
			if err != nil {
				return nil, fmt.Errorf("a claim of the plan: %w", err)
			}
			if out == nil {
				out = map[string]bool{}
			}
			out[string(key)] = true
		}
	}
	return out, nil
}

// settleCollisions looks at what the scan watched. Where keys give way that the
// scan did not know of, it says so: the scan has to be done again.
func (pl *planner) settleCollisions(ctx context.Context, c *claims, bad *badKeys) (again bool, err error) {
	if err := pl.watchMore(ctx, c, bad); err != nil {
		return false, err
	}
	pl.plan.Claims = c.settle(pl.plan.OnCollision == OnCollisionLatest)
	giveWay, err := losers(pl.plan.Claims)
	if err != nil || maps.Equal(giveWay, pl.rules.Losers) {
		return false, err
	}
	if pl.earlier != nil {
		return false, &Failure{Kind: ErrChanged, What: "what was appended changes which of the colliding keys is the latest, so records that the plan has decided on would have to be decided anew",
			Do: "plan again with a new --run-dir and a new target"}
	}
	pl.rules.Losers = giveWay
	return true, nil
}

// collisionsReport counts the target keys that several source keys become, and
// lists the first of them. plan.json has all.
func collisionsReport(settled []claim, r *report.Report) error {
	for _, c := range settled {
		if len(c.Keys) < 2 {
			continue
		}
		if r.Collided++; len(r.Collisions) == examplesInReport {
			continue
		}
		target, err := base64.StdEncoding.DecodeString(c.Target)
		if err != nil {
			return fmt.Errorf("a claim of the plan: %w", err)
		}
		collision := report.Collision{Target: report.Printable(target)}
		decided := slices.ContainsFunc(c.Keys, func(k claimant) bool { return k.GivesWay })
		for _, k := range c.Keys {
			key, err := base64.StdEncoding.DecodeString(k.Key)
			if err != nil {
				return fmt.Errorf("a claim of the plan: %w", err)
			}
			last := k.last()
			collision.Keys = append(collision.Keys, report.CollidingKey{KeyBase64: &k.Key, Key: report.Printable(key), Records: k.Records,
				First: k.First, Last: report.Position{Partition: last.Partition, Offset: last.Offset}, LastTime: last.TimestampMS, Completed: last.Completed, Wins: decided && !k.GivesWay})
		}
		r.Collisions = append(r.Collisions, collision)
	}
	return nil
}

// collisionFindings say which keys gave way.
func (pl *planner) collisionFindings(r *report.Report) {
	if r.Collided == 0 || pl.plan.OnCollision != OnCollisionLatest {
		return
	}
	kept := "The source key with the latest record"
	if pl.plan.Release04 != nil {
		kept = "The source key with a completed state, or else with the latest record,"
	}
	pl.findings = append(pl.findings, report.Finding{Severity: report.Warning, Code: "collisions-settled",
		Title: fmt.Sprintf("Target keys that stood for several source keys: %d", r.Collided),
		Text:  kept + " is kept, the others are left out. The report lists them.",
		Do:    "check that the keys that gave way are not needed"})
}
