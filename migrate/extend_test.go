package migrate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/report"
)

// extend extends the plan of m.
func (m *migration) extend(t testing.TB) (*report.Report, error) {
	t.Helper()
	o := m.options
	o.Extend = true
	return Plan(testcluster.Context(t), o, m.env)
}

// A deletion that came and went between two captures would leave its key on the
// target: an extension is in time or is refused.
func TestExtendPastTheHorizon(t *testing.T) {
	c := testcluster.Start(t)
	m := newMigration(t, c, smallTopic(), nil)
	m.cluster.AlterConfig(t, m.source, map[string]string{"delete.retention.ms": "600000"})
	m.planAndApply(t)
	m.write(t, m.source, []reader.Record{{Timestamp: 1, Key: []byte("a_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13")}})
	before, err := os.ReadFile(filepath.Join(m.run.RunDir, planFileName))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	m.env.Now = func() time.Time { return begin.Add(time.Hour) }
	_, err = m.extend(t)
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "keeps tombstones for 10m0s only") || !strings.Contains(Advice(err), "new --run-dir") {
		t.Fatalf("an hour later: %v; %s", err, Advice(err))
	}
	after, err := os.ReadFile(filepath.Join(m.run.RunDir, planFileName))
	if err != nil || string(after) != string(before) {
		t.Fatalf("the plan changed, %v", err)
	}
	m.env.Now = func() time.Time { return begin.Add(9 * time.Minute) }
	if _, err := m.extend(t); err != nil {
		t.Fatal("nine minutes later:", err)
	}
	// What the extension took down is copied in time too, or not at all.
	m.env.Now = func() time.Time { return begin.Add(11 * time.Minute) }
	if _, err := Apply(testcluster.Context(t), m.run, m.env); !errors.Is(err, ErrChanged) {
		t.Fatal("apply eleven minutes later:", err)
	}
	m.env.Now = func() time.Time { return begin.Add(9 * time.Minute) }
	m.apply(t)
	m.verify(t)
}

// A source that is not compacted loses no tombstones, so there is no hurry.
func TestExtendWithoutHorizon(t *testing.T) {
	testcluster.RequireFake(t, "a real broker refuses padding from a clock that runs a thousand hours ahead")
	c := testcluster.Start(t)
	m := newMigration(t, c, smallTopic(), nil)
	m.cluster.AlterConfig(t, m.source, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "delete.retention.ms": "1000"})
	m.planAndApply(t)
	m.write(t, m.source, []reader.Record{{Timestamp: 1, Key: []byte("a_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13")}})
	begin := time.Now()
	m.env.Now = func() time.Time { return begin.Add(1000 * time.Hour) }
	if _, err := m.extend(t); err != nil {
		t.Fatal(err)
	}
	m.apply(t)
	m.verify(t)
}

// An extension that ends before plan.json is replaced leaves a plan that can be
// applied, verified and extended.
func TestExtendEndsEarly(t *testing.T) {
	c := testcluster.Start(t)
	m := newMigration(t, c, smallTopic(), nil).planAndApply(t)
	p, err := m.env.runDir(m.run.RunDir).readPlan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Files) != 2 {
		t.Fatalf("%d sealed files, want unparseable and quarantine", len(p.Files))
	}
	if err := m.env.runDir(m.run.RunDir).keep(p); err != nil {
		t.Fatal(err)
	}
	for _, file := range p.Files {
		if err := os.WriteFile(filepath.Join(m.run.RunDir, file.Name), []byte("of the extension\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(t)
	m.verify(t)
	m.write(t, m.source, []reader.Record{
		{Timestamp: 1, Key: []byte("a_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13")},
		{Timestamp: 2, Key: []byte("a second bad key")},
	})
	if _, err := m.extend(t); err != nil {
		t.Fatal(err)
	}
	extended, err := m.env.runDir(m.run.RunDir).readPlan()
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range extended.Files {
		if want := p.Files[i].Lines + 1; file.Lines != want {
			t.Errorf("%s has %d lines, want %d", file.Name, file.Lines, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(m.run.RunDir, "*"+keptName("")))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	m.apply(t)
	m.verify(t)

	// Without a copy nothing excuses a file that was edited.
	if err := os.WriteFile(filepath.Join(m.run.RunDir, unparseableFileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(testcluster.Context(t), m.run, m.env); !errors.Is(err, ErrChanged) {
		t.Errorf("an edited file: %v", err)
	}
}

// A topic that keeps its tombstones for ever says so with the largest number
// there is, which is no negative time.
func TestTombstonesKeptForEver(t *testing.T) {
	since := time.Unix(1_700_000_000, 0)
	now := since.Add(1000 * time.Hour)
	for _, test := range []struct {
		retention int64
		refused   bool
	}{{math.MaxInt64, false}, {-1, false}, {3_600_000, true}, {1000 * 3_600_000, false}, {1000*3_600_000 - 1, true}} {
		p := plan{Source: planSource{Topic: "t", DeleteRetentionMS: test.retention}}
		if err := p.horizonFailure(since, now); (err != nil) != test.refused {
			t.Errorf("retention %d ms, read 1000 h ago: %v", test.retention, err)
		}
		if test.retention < 0 {
			continue
		}
		configs := map[string]topicConfig{"delete.retention.ms": {value: strconv.FormatInt(test.retention, 10)}}
		if gone := tombstonesMayBeGone(configs, since, now); gone != test.refused {
			t.Errorf("retention %d ms, written 1000 h ago: gone %t", test.retention, gone)
		}
	}
}
