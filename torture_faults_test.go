//go:build linux

package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"rekey/fixtures/seed"
	"rekey/fixtures/torture"
	"rekey/report"
)

// Thousands of hostile keys go to a target: those that parse are re-keyed, of the
// others some are repaired, some dropped, and the rest is copied as it is. The model
// judges every record of them.
func TestTortureHostileKeys(t *testing.T) {
	a := newArena(t, "hostile keys to a target")
	n := number(t, 5500, 20_000, 5500)
	var records []seed.Record
	var lines []report.Repair
	repairs := map[string][]byte{}
	const partitions, ids = 4, "a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"
	became := map[string]int{}
	for i, key := range hostileKeys(n + 1) {
		if key == nil {
			continue // cannot be copied; others hold that
		}
		for version := range 1 + a.rand.IntN(2) {
			r := seed.Record{Partition: seed.Partition(key, partitions), Timestamp: 1_700_000_000_000 + int64(i), Key: key, Value: fmt.Appendf(nil, "%d.%d", i, version)}
			if a.rand.IntN(5) == 0 {
				r.Value = nil
			}
			records = append(records, r)
		}
		if oracle("legacy", key).reason == "" {
			became["re-keyed"]++
			continue
		}
		text := base64.StdEncoding.EncodeToString(key)
		line := report.Repair{Decision: "copy", KeyBase64: &text, Key: report.NewBadKey(key).Key}
		switch a.rand.IntN(4) {
		case 0:
			became["repaired"]++
			business, sequence := fmt.Sprintf("repaired %d%%_", i), a.rand.Int64()
			line.Decision, line.BusinessKey, line.Sequence, line.EventUUID, line.ActionUUID = "rewrite", &business, &sequence, ids[:36], ids[37:]
			repairs[string(key)] = fmt.Appendf(nil, "repaired %d%%25%%5F_%d_%s", i, sequence, ids)
		case 1:
			became["dropped"]++
			line.Decision = "drop"
			repairs[string(key)] = nil
		default:
			became["copied as they are"]++
			if a.rand.IntN(2) == 0 {
				continue // the policy copies it too
			}
		}
		lines = append(lines, line)
	}
	a.rand = rand.New(rand.NewPCG(a.result.Seed, 2)) // prepare chooses by it
	a.source = a.Seed(t, "source", fmt.Sprintf("partitions %d\n%s", partitions, seed.Format(records)))
	a.look()
	file := filepath.Join(t.TempDir(), "repairs.jsonl")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if err := report.WriteRepair(out, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	m := a.prepare()
	m.flags = []string{"--source", a.source, "--target", m.target, "--on-unparseable", "copy", "--repairs", file}
	m.demand.Copy, m.demand.Latest, m.demand.Align, m.demand.Repairs = true, false, true, repairs
	m.plan()
	m.conclude()
	a.result.Runs++
	a.result.Kinds = map[string]*torture.Kind{}
	for _, kind := range []string{"re-keyed", "copied as they are", "repaired", "dropped"} {
		keys := became[kind]
		if keys < n/50 {
			t.Errorf("of %d keys only %d are %s", n, keys, kind)
		}
		a.result.Kinds[kind] = &torture.Kind{Cases: keys, Cured: keys}
		if t.Failed() {
			a.result.Kinds[kind] = &torture.Kind{Cases: keys, Wrong: keys}
		}
	}
}
