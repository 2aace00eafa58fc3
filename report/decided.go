package report

import (
	"fmt"
	"strconv"
	"strings"
)

// textDecided bounds the lines of each table of what was decided by hand.
const textDecided = 50

// total is a decision of the repairs in words.
func (t *RepairTotal) total() string {
	return fmt.Sprintf("%s: %s, %s", decisionWords(t.Decision), plural(t.Keys, "key", "keys"), records(t.Records))
}

// unused says how many repairs found nothing to repair, or "".
func (r *Repairs) unused() string {
	if r.Unused == 0 {
		return ""
	}
	return fmt.Sprintf("%s of keys that are not in the topic.", plural(r.Unused, "repair is", "repairs are"))
}

func (r *Report) repairsText(p *page) {
	if r.Repairs == nil {
		return
	}
	p.heading("REPAIRS OF KEYS THAT CANNOT BE PARSED")
	for _, t := range r.Repairs.Totals {
		p.para(2, capital(t.total())+".")
	}
	if text := r.Repairs.unused(); text != "" {
		p.para(2, text)
	}
	for i, k := range r.Repairs.Keys {
		if i == textDecided {
			p.para(2, fmt.Sprintf("and %d more; report.json and unparseable.jsonl have them", len(r.Repairs.Keys)-i))
			break
		}
		p.blank()
		p.para(2, Shorten(k.Before, p.width-2))
		p.para(4, fmt.Sprintf("%s, %s, first at %s", decisionWords(k.Decision), records(k.Records), k.First))
		if k.After != "" {
			p.para(4, "becomes "+Shorten(k.After, p.width-12))
		}
	}
}

// UnsafeText says which older checkpoints pruning makes unsafe, or "" if none.
func (r *Pruned) UnsafeText() string {
	if r.UnsafeKeys == 0 {
		return ""
	}
	places := make([]string, len(r.Unsafe))
	for i, at := range r.Unsafe {
		places[i] = at.String()
	}
	return fmt.Sprintf("Older checkpoints become unsafe: those whose marker has one of these offsets or a lower one (partition@offset) would have read %s that the new topic does not have: %s.",
		plural(r.UnsafeKeys, "state", "states"), strings.Join(places, ", "))
}

func (r *Report) prunedText(p *page) {
	x := r.Pruned
	if x == nil {
		return
	}
	p.heading("PRUNED")
	t := table{cols: []column{{head: "rule"}, {head: "entries", right: true}, {head: "records saved", right: true}, {head: "data saved", right: true}}}
	for _, rule := range x.Rules {
		t.add(plain(rule.Rule), thousands(rule.Entries), thousands(rule.Records), size(rule.Bytes))
	}
	p.table(t)
	if text := x.UnsafeText(); text != "" {
		p.para(2, text)
	}
	if len(x.Keys) > 0 {
		p.blank()
		room := p.width - 50
		t := table{cols: []column{{head: "business key", max: room}, {head: "sequence", right: true}, {head: "last at"}, {head: "rule"}, {head: "had a state"}}}
		for i, k := range x.Keys {
			if i == textDecided {
				break
			}
			state := "no"
			if k.State {
				state = "yes"
			}
			t.add(Shorten(k.BusinessKey, room), strconv.FormatInt(k.Sequence, 10), k.Last.String(), plain(k.Rule), state)
		}
		var entries int64
		for _, rule := range x.Rules {
			entries += rule.Entries
		}
		if entries > int64(len(t.rows)) {
			t.more = fmt.Sprintf("and %s more", thousands(entries-int64(len(t.rows))))
		}
		p.table(t)
	}
	if x.Unmatched > 0 {
		p.blank()
		p.para(2, fmt.Sprintf("Lines of the prune list that match no key of the topic: %s of %s. prune-unmatched.jsonl has them.", thousands(x.Unmatched), thousands(x.Lines)))
		for i, line := range x.Examples {
			if i == textMore {
				break
			}
			p.para(4, fmt.Sprintf("%s up to %d", Shorten(Printable([]byte(*line.BusinessKey)), p.width-30), *line.Sequence))
		}
	}
}

func (r *Report) collisionsText(p *page) {
	if len(r.Collisions) == 0 {
		return
	}
	p.heading("KEYS THAT COLLIDE")
	all := r.collided()
	p.para(2, "Each of these would stand for several keys of the old topic.")
	for i, c := range r.Collisions {
		if i == textDecided {
			p.para(2, fmt.Sprintf("and %s more; report.json has the first %d, plan.json all", thousands(all-int64(i)), len(r.Collisions)))
			break
		}
		p.blank()
		p.para(2, Shorten(c.Target, p.width-2))
		for _, k := range c.Keys {
			p.para(4, fmt.Sprintf("from %s", Shorten(k.Key, p.width-10)))
			p.para(8, fmt.Sprintf("%s, first at %s, last at %s%s", records(k.Records), k.First, k.Last, c.outcome(k)))
		}
	}
}

// collided is how many target keys several source keys become: at least those
// that are listed, whoever wrote the report.
func (r *Report) collided() int64 { return max(r.Collided, int64(len(r.Collisions))) }

// outcome says what becomes of one of the keys, once that is settled.
func (c *Collision) outcome(k CollidingKey) string {
	completed, settled := "", false
	if k.Completed {
		completed = ", completed"
	}
	for _, k := range c.Keys {
		settled = settled || k.Wins
	}
	switch {
	case k.Wins:
		return completed + "; it wins"
	case settled:
		return completed + "; it gives way"
	}
	return completed
}
