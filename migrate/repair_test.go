package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// badKeysOf reads unparseable.jsonl.
func badKeysOf(t *testing.T, dir string) []report.BadKey {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, unparseableFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []report.BadKey
	for bad, err := range report.ReadBadKeys(file) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bad)
	}
	return all
}

// The way of the demo's topic: a plan that refuses, all suggestions accepted, all
// other keys dropped by hand, and a target that holds every repaired key with
// its values and none of the dropped ones.
func TestRepairOfTheDemoTopic(t *testing.T) {
	c := testcluster.Start(t)
	topic := seed.Options{Seed: 1, Partitions: 8, Records: 20_000, Keys: 1000, Tombstones: 300, Unparseable: 24, Headers: 50, EmptyValues: 3, NullText: 2}
	m := newMigration(t, c, topic, func(o *PlanOptions) { o.OnUnparseable = rewrite.PolicyFail })
	first, err := Plan(testcluster.Context(t), m.options, m.env)
	refused(t, err, 3, "cannot be parsed")
	var reasons []string
	for _, reason := range first.Unparseable {
		reasons = append(reasons, reason.Reason)
	}
	run, err := Repair(RepairOptions{RunDir: m.options.RunDir, Accept: reasons}, m.env)
	if err != nil {
		t.Fatal(err)
	}
	bad := badKeysOf(t, m.options.RunDir)
	suggested := map[string]string{} // new key by old key
	var byHand []report.Repair
	for _, b := range bad {
		key, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if s := b.Suggestion; s != nil {
			suggested[string(key)] = fmt.Sprintf("%s_%d_%s_%s", escapeText(s.BusinessKey), s.Sequence, s.EventUUID, s.ActionUUID)
			continue
		}
		line, err := report.RepairFor(b, "drop")
		if err != nil {
			t.Fatal(err)
		}
		byHand = append(byHand, line)
	}
	if len(suggested) == 0 || len(byHand) == 0 || int(run.Added) != len(suggested) || int(run.WithoutSuggestion) != len(byHand) {
		t.Fatalf("%d suggestions, %d others, repair says %+v", len(suggested), len(byHand), run)
	}
	run, err = Repair(RepairOptions{RunDir: m.options.RunDir, Edit: repairsFile(t, byHand...)}, m.env)
	if err != nil || len(run.Remaining) != 0 || int(run.Lines) != len(bad) {
		t.Fatalf("%+v, %v", run, err)
	}

	// Two copies of one key can have been spoilt in different ways.
	m.options.Repairs, m.options.OnCollision = filepath.Join(m.options.RunDir, repairsFileName), OnCollisionLatest
	m.options.RunDir = filepath.Join(t.TempDir(), "second")
	m.run.RunDir = m.options.RunDir
	second, err := Plan(testcluster.Context(t), m.options, m.env)
	if err != nil {
		t.Fatal(err)
	}
	m.apply(t)
	m.verify(t)
	gaveWay := map[string]bool{}
	for _, collision := range second.Collisions {
		for _, k := range collision.Keys {
			if !k.Wins {
				gaveWay[k.Key] = true
			}
		}
	}
	want := map[string][]string{}
	dropped := int64(0)
	for _, r := range c.Read(t, m.source) {
		if readLegacy(r.Key) != nil {
			continue
		}
		target, rewritten := suggested[string(r.Key)]
		switch {
		case !rewritten:
			dropped++
		case !gaveWay[report.Printable(r.Key)]:
			want[target] = append(want[target], show(r.Value))
		}
	}
	got := map[string][]string{}
	for _, r := range c.Read(t, m.target) {
		if want[string(r.Key)] != nil {
			got[string(r.Key)] = append(got[string(r.Key)], show(r.Value))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("repaired keys (-want +got)\n%s", diff)
	}
	if second.Counts.Dropped != dropped || dropped == 0 {
		t.Errorf("%d records dropped, want %d", second.Counts.Dropped, dropped)
	}
	listed := slices.DeleteFunc(slices.Clone(second.Repairs.Keys), func(k report.RepairedKey) bool { return k.Decision != "drop" })
	if len(listed) != len(byHand) {
		t.Errorf("%d dropped keys are listed, want %d", len(listed), len(byHand))
	}
}

// The file of one run is the input of the next: what is written can be read, and
// nothing depends on the order of the lines.
func TestRepairSet(t *testing.T) {
	rules, err := DefaultPlanOptions().rules(1)
	if err != nil {
		t.Fatal(err)
	}
	lines := []report.Repair{repairOf("x ", "x", 1), repairOf("", "empty", 2), repairOf("\xff", "\U0001f600_%", keycodec.MaxSequence),
		{Decision: "drop", Key: "null"}, {Decision: "copy", KeyBase64: report.NewBadKey([]byte("null")).KeyBase64, Key: `"null"`}}
	var sorted [][]report.Repair
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}} {
		set := newRepairSet(rules)
		for n, i := range order {
			if err := set.add(n+1, lines[i]); err != nil {
				t.Fatal(err)
			}
		}
		dir := onDisk(t.TempDir())
		if err := dir.writeRepairs(set.sorted()); err != nil {
			t.Fatal(err)
		}
		again, err := readRepairsFile(dir.path(repairsFileName), rules)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(set.sorted(), again.sorted()); diff != "" {
			t.Errorf("-written +read\n%s", diff)
		}
		sorted = append(sorted, again.sorted())
		var into rewrite.Rules
		again.into(&into)
		if len(into.Repairs) != 4 || into.NullKey == nil || into.NullKey.Action != rewrite.RepairDrop || into.Repairs["null"].Action != rewrite.RepairCopy || into.Repairs[""].Action != rewrite.RepairRewrite {
			t.Errorf("rules: %+v", into)
		}
	}
	if diff := cmp.Diff(sorted[0], sorted[1]); diff != "" {
		t.Errorf("the order of the lines matters\n%s", diff)
	}
	set := newRepairSet(rules)
	for name, line := range map[string]report.Repair{
		"negative sequence":       repairOf("x ", "x", -1),
		"a business key of bytes": repairOf("x ", "\xff", 1),
	} {
		if err := set.add(1, line); err == nil || !strings.Contains(err.Error(), "escaped") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
