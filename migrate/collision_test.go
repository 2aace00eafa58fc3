package migrate

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/testcluster"
	"rekey/report"
	"rekey/rewrite"
)

const spoilt = "a_b_0_" + historyIDs + " "

// repairOf is a line that rewrites a key to business key and sequence.
func repairOf(key, business string, sequence int64) report.Repair {
	bad := report.NewBadKey([]byte(key))
	return report.Repair{Decision: "rewrite", KeyBase64: bad.KeyBase64, Key: bad.Key, BusinessKey: &business, Sequence: &sequence,
		EventUUID: historyIDs[:36], ActionUUID: historyIDs[37:]}
}

// repairsFile writes a repairs file and gives its path.
func repairsFile(t *testing.T, lines ...report.Repair) string {
	t.Helper()
	dir := t.TempDir()
	if err := onDisk(dir).writeRepairs(lines); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, repairsFileName)
}

// The later record wins: by position within a partition, by time across
// partitions, and never by which partition was read first.
func TestClaimsSettle(t *testing.T) {
	rules, err := DefaultPlanOptions().rules(2)
	if err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSpace(spoilt)
	set := newRepairSet(rules)
	if err := set.add(1, repairOf(spoilt, "a_b", 0)); err != nil {
		t.Fatal(err)
	}
	set.into(&rules)
	record := func(key string, partition int32, offset, timestamp int64) rewrite.Record {
		return rewrite.Record{Partition: partition, Offset: offset, Timestamp: timestamp, Key: []byte(key), Value: []byte("v")}
	}
	for name, c := range map[string]struct {
		records []rewrite.Record
		loser   string
	}{
		"one alone":                       {[]rewrite.Record{record(spoilt, 0, 1, 1), record("other_0_"+historyIDs, 0, 2, 2)}, ""},
		"later by position":               {[]rewrite.Record{record(spoilt, 0, 1, 9), record(good, 0, 2, 1)}, spoilt},
		"earlier by position":             {[]rewrite.Record{record(good, 0, 1, 9), record(spoilt, 0, 2, 1)}, good},
		"later by time":                   {[]rewrite.Record{record(spoilt, 0, 7, 1), record(good, 1, 2, 2)}, spoilt},
		"the same time":                   {[]rewrite.Record{record(spoilt, 0, 7, 5), record(good, 1, 2, 5)}, spoilt},
		"its last record counts":          {[]rewrite.Record{record(spoilt, 0, 1, 1), record(good, 0, 2, 2), record(spoilt, 0, 3, 3)}, good},
		"its latest partition counts":     {[]rewrite.Record{record(spoilt, 0, 1, 1), record(good, 1, 2, 5), record(spoilt, 0, 9, 2), record(spoilt, 1, 1, 9)}, spoilt},
		"a tombstone is a record as well": {[]rewrite.Record{record(spoilt, 0, 1, 1), {Partition: 0, Offset: 2, Key: []byte(good)}}, spoilt},
	} {
		for _, reversed := range []bool{false, true} {
			watch, err := newClaims(rules, nil)
			if err != nil {
				t.Fatal(err)
			}
			records := slices.Clone(c.records)
			if reversed {
				// Partitions are read in any order, each of them in order.
				slices.SortStableFunc(records, func(a, b rewrite.Record) int { return int(b.Partition - a.Partition) })
			}
			for i := range records {
				if err := watch.watcher().note(&records[i]); err != nil {
					t.Fatal(err)
				}
			}
			got, err := losers(watch.settle(true))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			if c.loser != "" {
				want[c.loser] = true
			}
			if len(got) != len(want) || c.loser != "" && !got[c.loser] {
				t.Errorf("%s: %v gives way, want %q", name, got, c.loser)
			}
			if none, err := losers(watch.settle(false)); err != nil || none != nil {
				t.Errorf("%s: %v gives way though nobody asked", name, none)
			}
		}
	}
}

// What a plan holds of its claims, an extension goes on from.
func TestClaimsGoOn(t *testing.T) {
	rules, err := DefaultPlanOptions().rules(2)
	if err != nil {
		t.Fatal(err)
	}
	set := newRepairSet(rules)
	if err := set.add(1, repairOf(spoilt, "a_b", 0)); err != nil {
		t.Fatal(err)
	}
	set.into(&rules)
	first, err := newClaims(rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.watcher().note(&rewrite.Record{Offset: 3, Timestamp: 9, Key: []byte(spoilt)}); err != nil {
		t.Fatal(err)
	}
	sealed := first.settle(true)
	second, err := newClaims(rules, sealed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, second.settle(true)); diff != "" {
		t.Fatalf("nothing was appended (-first +second)\n%s", diff)
	}
	if err := second.watcher().note(&rewrite.Record{Offset: 4, Key: []byte(strings.TrimSpace(spoilt))}); err != nil {
		t.Fatal(err)
	}
	if got, err := losers(second.settle(true)); err != nil || !got[spoilt] {
		t.Errorf("%v, %v: the spoilt key of the first capture gives way to the good one of the second", got, err)
	}
	if sealed[0].Keys[0].Records != 1 {
		t.Error("going on changed what the plan holds")
	}
	if _, err := newClaims(rules, []claim{{Target: "", Keys: []claimant{{Key: ""}}}}); err == nil {
		t.Error("a claim without a record is accepted")
	}
	if _, err := newClaims(rules, []claim{{Target: "%"}}); err == nil {
		t.Error("a damaged claim is accepted")
	}
	if _, err := newClaims(rules, []claim{{Target: "", Keys: []claimant{{Key: base64.RawStdEncoding.EncodeToString([]byte("a"))}}}}); err == nil {
		t.Error("a damaged key of a claim is accepted")
	}
}

// An extension that would turn a settled collision round is refused: the records
// of the key that won may be on the target by now.
func TestExtendKeepsWhoWon(t *testing.T) {
	c := testcluster.Start(t)
	source := c.Seed(t, "source", `partitions 1
config cleanup.policy=compact
0 1700000000000 a_b_0_`+historyIDs+` good
0 1700000000001 "`+spoilt+`" spoilt
`)
	m := migrationOf(t, c, source, func(o *PlanOptions) {
		o.Repairs, o.OnCollision = repairsFile(t, repairOf(spoilt, "a_b", 0)), OnCollisionLatest
	})
	m.run.AllowLiveSource = true
	m.planAndApply(t)
	m.verify(t)
	before, err := os.ReadFile(filepath.Join(m.run.RunDir, planFileName))
	if err != nil {
		t.Fatal(err)
	}
	m.options.Repairs = ""        // an extension takes no rules
	more := c.Read(t, source)[:1] // the key that gave way
	m.write(t, source, more)
	_, err = m.extend(t)
	refused(t, err, 4, "which of the colliding keys is the latest")
	after, err := os.ReadFile(filepath.Join(m.run.RunDir, planFileName))
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the refused extension changed the plan")
	}
	m.verify(t)
}

// The same command resumes only with the same decisions.
func TestMigrateWithOtherRules(t *testing.T) {
	c := testcluster.Start(t)
	source := c.Seed(t, "source", `partitions 1
config cleanup.policy=compact
0 1700000000000 a_b_0_`+historyIDs+` good
0 1700000000001 "`+spoilt+`" spoilt
`)
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := migrationOf(t, c, source, func(o *PlanOptions) {
		o.Repairs, o.OnCollision = repairsFile(t, repairOf(spoilt, "c", 0)), OnCollisionFail
		o.Prune = write("prune.csv", "business_key,sequence\na_b,0\n")
		o.PruneBefore = write("marker.json", `{"offsets":{"0":1}}`)
	})
	if _, err := Migrate(testcluster.Context(t), m.options, false, m.env); err != nil {
		t.Fatal(err)
	}
	same := m.options
	same.Prune = write("same.jsonl", `{"sequence":0,"business_key":"a_b"}`)
	same.Pruned = rewrite.PrunedTombstone
	if _, err := Migrate(testcluster.Context(t), same, false, m.env); err != nil {
		t.Fatalf("the same rules in other words: %v", err)
	}
	for name, change := range map[string]func(*PlanOptions){
		"--repairs":      func(o *PlanOptions) { o.Repairs = repairsFile(t, repairOf(spoilt, "c", 1)) },
		"--prune":        func(o *PlanOptions) { o.Prune = write("other.csv", "business_key,sequence\na_b,1\n") },
		"--prune-before": func(o *PlanOptions) { o.PruneBefore = write("other.json", `{"offsets":{"0":2}}`) },
		"--pruned":       func(o *PlanOptions) { o.Pruned = rewrite.PrunedOmit },
		"--on-collision": func(o *PlanOptions) { o.OnCollision = OnCollisionLatest },
	} {
		other := m.options
		change(&other)
		_, err := Migrate(testcluster.Context(t), other, false, m.env)
		refused(t, err, 2, name)
	}
	// The list is sealed as the other files are.
	sealed := filepath.Join(m.run.RunDir, pruneFileName)
	if err := os.WriteFile(sealed, []byte(`{"business_key":"a_b","sequence":7}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 4, pruneFileName)
}
