package migrate

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"rekey/fixtures/reader"
	"rekey/keycodec"
	"rekey/rewrite"
)

// A digest cannot be decoded, so verify goes forward from the source. Whatever
// is wrong with a key of release 0.4 is found all the same.
func TestVerifyFindsDamagedKeysOfRelease04(t *testing.T) {
	const (
		action = "30e6b546-354f-3cf6-a60e-7956be205a13" // of ruleIDs
		value  = `{"taskEvent":{"type":"x"},"outputEvents":[]}`
	)
	p := rulePlan(1, 4, "flink-agents")
	p.To = keycodec.NameFlinkAgents04
	p.Release04 = &planRelease04{KeyType: "string", MaxParallelism: 128, OnIncompatible: rewrite.PolicyQuarantine, Actions: actionNames{action: "think"}}
	rules, err := p.rules(runDir{})
	if err != nil {
		t.Fatal(err)
	}

	var source, target []reader.Record
	decider := rewrite.NewDecider(rules)
	offsets := make([]int64, 4)
	p.Captures[0].Flows = nil
	for i := range 40 {
		r := reader.Record{Offset: int64(i), Key: []byte(fmt.Sprintf("user_%d%s", i%30, ruleIDs)), Value: []byte(value)}
		if i%7 == 3 {
			r.Value = []byte("release 0.4 cannot read it")
		}
		source = append(source, r)
		d, err := decider.Decide(&rewrite.Record{Offset: r.Offset, Key: r.Key, Value: r.Value}, r.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Action.OnTarget() {
			continue
		}
		r.Headers = []reader.Header{{Key: rewrite.ProvenanceHeader, Value: rewrite.AppendProvenance(nil, 0, r.Offset, 0)}}
		r.Key, r.Partition, r.Offset = bytes.Clone(d.Key), d.Partition, offsets[d.Partition]
		offsets[d.Partition]++
		target = append(target, r)
	}
	for partition, n := range offsets {
		if n == 0 {
			t.Fatalf("nothing on partition %d", partition)
		}
	}
	if c, out := (sideBySide{plan: p, source: source, target: target}).compare(t); !out.exact || c.total > 0 {
		t.Fatalf("undamaged: exact %t, %v", out.exact, c.sorted())
	}

	replace := func(field int, text string) func(*reader.Record) {
		return func(r *reader.Record) {
			parts := bytes.Split(r.Key, []byte{'_'})
			parts[field] = []byte(text)
			r.Key = bytes.Join(parts, []byte{'_'})
		}
	}
	for name, damage := range map[string]func(*reader.Record){
		"another key group":      replace(0, "127"),
		"a key group too high":   replace(0, "128"),
		"another sequence":       replace(1, "1"),
		"the old action UUID":    replace(3, action),
		"the digest of a long":   replace(4, "zSZiFU5tdrKyuS5wwMrDzPU0+bdOtbiYGexQkIPQClA="),
		"no canonical digest":    replace(4, "zSZiFU5tdrKyuS5wwMrDzPU0+bdOtbiYGexQkIPQClB="),
		"the old key":            func(r *reader.Record) { r.Key = bytes.Clone(source[0].Key) },
		"another value":          func(r *reader.Record) { r.Value = []byte(value + " ") },
		"a tombstone":            func(r *reader.Record) { r.Value = nil },
		"another source offset":  func(r *reader.Record) { r.Headers[0].Value = []byte("0:77") },
		"a quarantined position": func(r *reader.Record) { r.Headers[0].Value = []byte("0:3") },
	} {
		for _, at := range []int{0, len(target) / 2, len(target) - 1} {
			damaged := slices.Clone(target)
			damaged[at].Headers = slices.Clone(damaged[at].Headers)
			damage(&damaged[at])
			if c, _ := (sideBySide{plan: p, source: source, target: damaged}).compare(t); c.total == 0 {
				t.Errorf("%s at record %d: no difference", name, at)
			}
		}
	}
}
