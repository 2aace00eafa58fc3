package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"rekey/fixtures/torture"
	"rekey/report"
)

// What was quarantined is repaired in two rounds, replayed and killed meanwhile,
// the resume too; before, between or behind the rounds the plan is extended. The
// target is judged after every success, and so is the topic of what was
// quarantined, where there is one.
func TestTortureKillReplay(t *testing.T) {
	a := newArena(t, "repair --replay: kill -9")
	a.fill(tortured(a.result.Seed, 1000))
	a.measure()
	for n := number(t, 2, 60, 6); a.result.Hits < n && !t.Failed(); {
		a.fill(tortured(a.rand.Uint64(), 1000))
		a.badKeys(200)
		m := a.prepare()
		if m.demand.Copy {
			continue // nothing is quarantined
		}
		a.result.Runs++
		aside := ""
		if a.rand.IntN(2) == 0 {
			aside = a.Topic(t, "aside")
			m.flags = append(m.flags, "--quarantine-topic", aside)
		}
		m.plan()
		if !m.kill(false) || a.rand.IntN(2) == 0 {
			m.conclude()
		}
		for round := range 2 {
			if a.rand.IntN(3) == 0 {
				a.grow(100)
				a.badKeys(20)
				m.extend()
			}
			m.command = []string{"repair", "--replay"}
			m.repairSome(round)
			for m.kill(true) && a.rand.IntN(2) == 0 {
			}
			m.conclude()
			m.command = nil
			if problems := m.asideProblems(aside); len(problems) > 0 {
				a.result.Failures++
				a.result.FalseSuccess++
				t.Fatalf("the topic of what was quarantined: %d problems: %q", len(problems), problems[:min(5, len(problems))])
			}
		}
	}
}

// asideProblems is the verdict on the topic of what was quarantined.
func (m *migration) asideProblems(topic string) []string {
	m.Helper()
	if topic == "" {
		return nil
	}
	demand := torture.Demand{Partitions: m.demand.Partitions, Captures: m.demand.Captures, Aside: true}
	return demand.Problems(m.records, m.Read(m, topic))
}

// repairSome decides on half of the quarantined keys that are left, and tells
// the model.
func (m *migration) repairSome(round int) {
	m.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, "unparseable.jsonl"))
	if err != nil {
		m.Fatal(err)
	}
	const ids = "a2622b55-28e2-3a3c-9bde-7164cf05dbea"
	var lines []byte
	targets := map[string]string{}
	for bad, err := range report.ReadBadKeys(bytes.NewReader(content)) {
		if err != nil {
			m.Fatal(err)
		}
		key, err := bad.Bytes()
		if err != nil {
			m.Fatal(err)
		}
		known := slices.ContainsFunc(m.demand.Replays, func(keys map[string]string) bool { return keys[string(key)] != "" })
		if known || key == nil || m.rand.IntN(2) == 0 {
			continue
		}
		business := fmt.Sprintf("mended %d-%d", round, len(targets))
		line, err := json.Marshal(map[string]any{"decision": "rewrite", "key_base64": bad.KeyBase64, "key": bad.Key,
			"business_key": business, "sequence": 7, "event_uuid": ids, "action_uuid": ids})
		if err != nil {
			m.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
		targets[string(key)] = business + "_7_" + ids + "_" + ids
	}
	m.demand.Replays = append(m.demand.Replays, targets)
	if len(targets) == 0 {
		m.command = nil // nothing to replay
		return
	}
	file := filepath.Join(m.TempDir(), "edit.jsonl")
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		m.Fatal(err)
	}
	if p := start(m, exec.Command(rekeyPath(m), "repair", "--edit", file, "--run-dir", m.dir)); p.wait() != 0 {
		m.Fatalf("repair: %v", p)
	}
}
