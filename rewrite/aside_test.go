package rewrite

import "testing"

// Whatever is not on the target, or comes there with a replay only, is kept aside
// whole, with its own key, in its own partition. Nothing else is.
func TestAside(t *testing.T) {
	record := &Record{Partition: 5, Offset: 7, Key: []byte("bad"), Value: []byte("v")}
	for _, c := range []struct {
		decision Decision
		kept     bool
	}{
		{Decision{Action: Quarantine, Reason: Unparseable}, true},
		{Decision{Action: Quarantine, Reason: IncompatibleValue}, true},
		{Decision{Action: Write, Reason: Repaired, Round: 1}, true},
		{Decision{Action: Tombstone, Reason: NullValue, Round: 2}, true},
		{Decision{Action: Omit, Reason: Superseded, Round: 2}, true},
		{Decision{Action: Drop, Reason: Repaired, Round: 1}, true},
		{Decision{Action: Write, Reason: Repaired}, false},
		{Decision{Action: Write}, false},
		{Decision{Action: Drop, Reason: Repaired}, false},
		{Decision{Action: Omit, Reason: Pruned}, false},
		{Decision{Action: Copy, Reason: Unparseable}, false},
	} {
		got := c.decision.Aside(record)
		if kept := got.Action.OnTarget(); kept != c.kept {
			t.Errorf("%+v: kept aside %t, want %t", c.decision, kept, c.kept)
			continue
		}
		if c.kept && (got.Action != Copy || string(got.Key) != "bad" || got.Partition != 5 || got.Round != 0 || got.Reason != c.decision.Reason) {
			t.Errorf("%+v: kept aside as %+v", c.decision, got)
		}
	}
}
