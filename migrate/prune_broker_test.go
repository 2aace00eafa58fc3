package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/report"
	"rekey/rewrite"
)

// A hundred random histories on a broker, for both histories and both forms of
// pruned keys. They share a topic, as keys of different jobs would not, but each
// has business keys of its own. On a real broker the log cleaner then runs on
// both sides: the pruned keys are gone, and every other key's last value is there.
func TestPruneOnABroker(t *testing.T) {
	c := testcluster.Start(t)
	for _, latest := range []bool{false, true} {
		for _, omit := range []bool{false, true} {
			t.Run(fmt.Sprintf("latest=%t,omit=%t", latest, omit), func(t *testing.T) {
				h, records := manyHistories(rand.New(rand.NewPCG(7, 7)), 100, 3)
				h.latest, h.omit = latest, omit
				topic := c.CreateTopic(t, c.Topic(t, "source"), 3, map[string]string{"cleanup.policy": "compact"})
				m := migrationOf(t, c, topic, func(o *PlanOptions) {
					o.OnUnparseable = rewrite.PolicyFail
					o.TargetConfig = map[string]string{"delete.retention.ms": "0"}
					o.Prune, o.PruneBefore, o.Repairs = h.files(t)
					if latest {
						o.History = rewrite.HistoryLatest
					}
					if omit {
						o.Pruned = rewrite.PrunedOmit
					}
				})
				m.run.AllowLiveSource = true // compacting appends markers
				m.write(t, topic, records)
				m.planAndApply(t)
				m.verify(t)
				want := map[string]string{}
				for partition := range h.ends {
					for _, d := range h.demanded(int32(partition)) {
						want[d.key] = d.value
					}
				}
				if diff := cmp.Diff(want, latestByKey(c.Read(t, m.target))); diff != "" {
					t.Fatalf("-want +got\n%s", diff)
				}
				if !c.Real() {
					return // the embedded broker moves the log start when it compacts
				}
				c.Compact(t, m.source)
				m.verify(t)
				c.CompactUntil(t, m.target, func(rs []reader.Record) bool {
					return !slices.ContainsFunc(rs, func(r reader.Record) bool { return isMigrated(r) && r.Value == nil })
				})
				m.verify(t)
				maps.DeleteFunc(want, func(_, value string) bool { return value == "null" })
				if diff := cmp.Diff(want, latestByKey(c.Read(t, m.target))); diff != "" {
					t.Errorf("after the cleaner ran (-want +got)\n%s", diff)
				}
			})
		}
	}
}

// manyHistories joins histories into one whose records lie where the job's
// partitioner puts them, without holes.
func manyHistories(random *rand.Rand, n int, partitions int32) (history, []reader.Record) {
	all := history{ends: make([]int64, partitions), prunes: map[string]int64{}, before: make([]int64, partitions), repaired: map[string]entryKey{}}
	var records []reader.Record
	for i := range n {
		h := randomHistory(random)
		name := func(text string) string { return fmt.Sprintf("h%d.%s", i, text) }
		for key, upTo := range h.prunes {
			if upTo >= 0 {
				all.prunes[name(key)] = upTo
			}
		}
		for j, r := range h.records {
			text, key := name(string(r.Key)), h.keys[j]
			key.business = name(key.business)
			if _, spoilt := h.repaired[string(r.Key)]; spoilt {
				all.repaired[text] = key
			}
			r.Key, r.Partition = []byte(text), seed.Partition([]byte(text), partitions)
			r.Offset = all.ends[r.Partition]
			all.ends[r.Partition]++
			all.records, all.keys = append(all.records, r), append(all.keys, key)
			records = append(records, reader.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value})
		}
	}
	for partition, end := range all.ends {
		all.before[partition] = end / 3
	}
	return all, records
}

// files are the options that say what the history is to forget and to repair.
func (h *history) files(t *testing.T) (prune, before, repairs string) {
	t.Helper()
	dir := t.TempDir()
	prune, before, repairs = filepath.Join(dir, "prune.jsonl"), filepath.Join(dir, "marker.json"), filepath.Join(dir, repairsFileName)
	if err := onDisk(dir).writePruneList("prune.jsonl", h.prunes); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{"offsets": markerAt(h.before)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(before, content, 0o644); err != nil {
		t.Fatal(err)
	}
	var lines []report.Repair
	for text, key := range h.repaired {
		bad := report.NewBadKey([]byte(text))
		lines = append(lines, report.Repair{Decision: "rewrite", KeyBase64: bad.KeyBase64, Key: bad.Key, BusinessKey: &key.business, Sequence: &key.sequence,
			EventUUID: historyIDs[:36], ActionUUID: historyIDs[37:]})
	}
	if err := onDisk(dir).writeRepairs(lines); err != nil {
		t.Fatal(err)
	}
	return prune, before, repairs
}

// latestByKey is the last value of each key that was migrated.
func latestByKey(records []reader.Record) map[string]string {
	values := map[string]string{}
	for _, r := range records {
		if isMigrated(r) {
			values[string(r.Key)] = show(r.Value)
			if r.Value != nil {
				values[string(r.Key)] = string(r.Value)
			}
		}
	}
	return values
}

// An extension forgets by the rules of its plan: a key of the list that was
// appended only now, and again one that the first capture has forgotten already.
// What matched in the first capture alone stays matched.
// The marker lies before all that is appended, so it forgets nothing of it.
func TestExtendKeepsPruneRules(t *testing.T) {
	c := testcluster.Start(t)
	key := func(business string, sequence int) string {
		return fmt.Sprintf("%s_%d_%s", business, sequence, historyIDs)
	}
	source := c.Seed(t, "source", "partitions 2\nconfig cleanup.policy=compact\n1 1700000000000 "+key("first", 0)+" first\n"+
		"0 1700000000000 "+key("a", 0)+" old\n0 1700000000001 "+key("kept", 0)+" kept\n0 1700000000002 "+key("before", 0)+" before\n0 1700000000003 "+key("b", 1)+" b\n")
	dir := t.TempDir()
	if err := onDisk(dir).writePruneList("list", pruneList{"a": 0, "first": 0, "later": 5, "never": 1, "b": 0}); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(dir, "marker.json")
	if err := os.WriteFile(marker, []byte(`{"offsets":{"0":3,"1":0}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	m := migrationOf(t, c, source, func(o *PlanOptions) { o.Prune, o.PruneBefore = filepath.Join(dir, "list"), marker })
	m.run.AllowLiveSource = true
	m.planAndApply(t)
	m.verify(t)
	if err := os.Remove(m.options.Prune); err != nil { // the plan has it
		t.Fatal(err)
	}
	m.write(t, source, []reader.Record{
		{Key: []byte(key("later", 5)), Value: []byte("x")}, {Key: []byte(key("a", 0)), Value: []byte("new")}, {Key: []byte(key("before", 0)), Value: []byte("back")},
		{Key: []byte(key("later", 6)), Value: []byte("six")},
	})
	m.options.Prune, m.options.PruneBefore = "", ""
	r, err := m.extend(t)
	if err != nil {
		t.Fatal(err)
	}
	m.apply(t)
	m.verify(t)
	want := map[string]string{key("first", 0): "null", key("a", 0): "null", key("kept", 0): "null", key("before", 0): "back", key("b", 1): "b", key("later", 5): "null", key("later", 6): "six"}
	if diff := cmp.Diff(want, latestByKey(c.Read(t, m.target))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var unmatched []string
	for _, line := range r.Pruned.Examples {
		unmatched = append(unmatched, *line.BusinessKey)
	}
	if !slices.Equal(unmatched, []string{"b", "never"}) || r.Pruned.Unmatched != 2 || r.Pruned.Lines != 5 {
		t.Errorf("%d of %d lines match nothing: %q", r.Pruned.Unmatched, r.Pruned.Lines, unmatched)
	}
	if diff := cmp.Diff([]report.PruneRule{{Rule: report.RulePrune, Entries: 4, Bytes: 12}, {Rule: report.RulePruneBefore, Entries: 2, Bytes: 10}}, r.Pruned.Rules); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]report.Position{{Partition: 0, Offset: 5}, {Partition: 1, Offset: 0}}, r.Pruned.Unsafe); diff != "" || r.Pruned.UnsafeKeys != 6 {
		t.Errorf("%d keys unsafe (-want +got)\n%s", r.Pruned.UnsafeKeys, diff)
	}
}
