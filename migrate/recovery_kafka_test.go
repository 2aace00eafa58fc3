package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rekey/fixtures/reader"
	java "rekey/fixtures/recovery"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/report"
)

// TestRecoveryOfTheJob restores savepoints as the job does: Kafka's own Java
// consumer reads the old topic and several new ones from the same markers, and
// what it has then is compared key by key. The keys are parsed by the test. Then
// the rehearsal must have said the same of each.
func TestRecoveryOfTheJob(t *testing.T) {
	testcluster.RequireReal(t, "the job's consumer decides, and its broker")
	c := testcluster.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	source := c.Topic(t, "source")
	_, err := seed.Write(ctx, c.Addrs(), source, seed.Options{Seed: 5, Partitions: 6, Records: 1800, Keys: 90, Tombstones: 150, Unparseable: 40,
		EmptyValues: 9, NullText: 9, Headers: 6, ValueBytes: 60, Jitter: 5000, Codec: wire.Snappy}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := migrationOf(t, c, source, nil)
	checkpoint := m.ends(t, source)
	m.write(t, source, recreated(c.Read(t, source)))
	c.Compact(t, source)
	c.DeleteRecords(t, source, 3, checkpoint[3]/3)
	late := m.ends(t, source)
	m.write(t, source, lastOfEach(c.Read(t, source))) // the job goes on, and so the logs end with records
	ends := m.ends(t, source)

	middle, without, beyond := marker{}, marker{}, marker{}
	for partition := range ends {
		p := int32(partition)
		middle[p] = ends[p] / 2
		if p != 2 {
			without[p] = ends[p] / 2
		}
		beyond[p] = late[p]
	}
	beyond[1] = 10 * ends[1]
	markers := []struct {
		name    string
		markers []marker
	}{
		{"0", []marker{markerAt(make([]int64, len(ends)))}}, // before the log start of partition 3
		{"middle", []marker{middle}},
		{"checkpoint", []marker{markerAt(checkpoint)}},
		{"two subtasks", []marker{markerAt(late), markerAt(checkpoint)}},
		{"at the end", []marker{markerAt(ends)}},
		{"without partition 2", []marker{without}},
		{"beyond the end", []marker{beyond}},
	}
	files := make([]string, len(markers))
	for i := range markers {
		files[i] = writeMarkers(t, markers[i].markers)
	}

	type target struct {
		name    string
		options func(*PlanOptions)
		compact bool
		aligned bool
		m       *migration
	}
	targets := []target{
		{name: "aligned", aligned: true},
		{name: "aligned, padding compacted away", aligned: true, compact: true},
		{name: "not aligned", options: func(o *PlanOptions) { o.Align = "none" }},
		{name: "exact", options: func(o *PlanOptions) { o.Align, o.PruneBefore, o.Pruned = files[1], files[1], "omit" }},
	}
	runtimes := []string{"0.2", "0.3", "0.4-strict"}
	var jobs []java.Job
	at := map[[3]string]int{} // topic, runtime, marker
	// Releases before 0.4-strict stop at a poll that brings nothing. To begin a
	// partition anew takes another request, and with the logs ending in the
	// markers that compacting takes here, such a poll comes sooner: what is not
	// read is then for the race to say, on any topic.
	skipped := func(topic, marker string) bool {
		return marker == "beyond the end" && slices.ContainsFunc(targets, func(to target) bool { return to.compact && to.m != nil && to.m.target == topic })
	}
	ask := func(topic string) {
		for _, runtime := range runtimes[1:] { // 0.2 is as 0.3
			for _, set := range markers {
				if skipped(topic, set.name) {
					continue
				}
				at[[3]string{topic, runtime, set.name}] = len(jobs)
				job := java.Job{Runtime: runtime, Topic: topic}
				for _, m := range set.markers {
					job.Markers = append(job.Markers, m)
				}
				jobs = append(jobs, job)
			}
		}
	}
	ask(source)
	for i := range targets {
		to := &targets[i]
		to.m = migrationOf(t, c, source, to.options)
		to.m.planAndApply(t)
		to.m.verify(t)
		if to.compact {
			c.CompactUntil(t, to.m.target, func(rs []reader.Record) bool {
				return len(rs) > 0 && countPadding(rs) <= len(ends)
			})
		}
		ask(to.m.target)
	}
	outcomes := recoverAll(t, ctx, c, jobs)

	lost, confusable, refusals := 0, 0, 0
	for _, to := range targets {
		evidence, err := Rehearse(ctx, RehearseOptions{RunOptions: to.m.run, Runtimes: runtimes, Markers: files}, to.m.env)
		if err != nil && !errors.Is(err, ErrDifferent) {
			t.Fatal(err)
		}
		for i, got := range evidence.Rehearsals {
			set := markers[i/len(runtimes)]
			runtime := runtimes[max(1, i%len(runtimes))]
			if skipped(to.m.target, set.name) {
				continue
			}
			onSource, onTarget := outcomes[at[[3]string{source, runtime, set.name}]], outcomes[at[[3]string{to.m.target, runtime, set.name}]]
			name := fmt.Sprintf("%s, runtime %s, marker %s", to.name, got.Runtime, set.name)
			if got.Runtime != runtime && got.Runtime != "0.2" || got.Marker != files[i/len(runtimes)] {
				t.Fatalf("rehearsal %d is of runtime %s and marker %s", i, got.Runtime, got.Marker)
			}
			if refused := refuses(got.Source.Effects); refused != (onSource.Refused != "") {
				t.Errorf("%s: on the source the rehearsal says refused: %v, and the consumer said %q", name, refused, onSource.Refused)
			}
			if refused := refuses(got.Target.Effects); refused != (onTarget.Refused != "") {
				t.Errorf("%s: on the target the rehearsal says refused: %v, and the consumer said %q", name, refused, onTarget.Refused)
			}
			if onSource.Refused != "" || onTarget.Refused != "" {
				refusals++
				continue
			}
			want := compareOutcomes(t, runtime, onSource, onTarget)
			if diff := cmp.Diff(want, got, onlyCounts); diff != "" {
				t.Errorf("%s (-consumer +rehearsal):\n%s", name, diff)
			}
			if got.Source.Records != onSource.Records {
				t.Errorf("%s: %d records of the source rehearsed, %d read", name, got.Source.Records, onSource.Records)
			}
			if runtime == "0.3" && (got.Source.Malformed != onSource.Malformed || got.Target.Malformed != onTarget.Malformed) {
				t.Errorf("%s: %d and %d malformed keys rehearsed, %d and %d read", name, got.Source.Malformed, got.Target.Malformed, onSource.Malformed, onTarget.Malformed)
			}
			// Keys move to other partitions: a marker must name them all.
			if to.aligned && len(got.Offsets) == len(ends) && want.Lost+want.Different > 0 {
				t.Errorf("%s: the job loses %d states and sees %d others", name, want.Lost, want.Different)
			}
			if to.name == "exact" && set.name == "middle" && (want.Lost+want.Different+want.Older+want.Confusable > 0 || want.Same == 0) {
				t.Errorf("%s: not the same states: %+v", name, want)
			}
			if !to.aligned {
				lost += int(want.Lost)
			}
			confusable += int(want.Confusable)
			t.Logf("%s: %d of %d states the same, %d lost, %d different, %d older, %d confusable", name, want.Same, want.Source.States, want.Lost, want.Different, want.Older, want.Confusable)
		}
	}
	if lost == 0 || confusable == 0 || refusals == 0 {
		t.Errorf("lost %d, confusable %d, refused %d: too tame to prove anything", lost, confusable, refusals)
	}
}

// recreated deletes some keys and writes them again, and deletes others.
func recreated(records []reader.Record) []reader.Record {
	var out []reader.Record
	seen := map[string]bool{}
	for _, r := range records {
		if readLegacy(r.Key) == nil || seen[string(r.Key)] {
			continue
		}
		seen[string(r.Key)] = true
		gone := reader.Record{Partition: r.Partition, Timestamp: time.Now().UnixMilli(), Key: r.Key}
		again := gone
		again.Value = []byte("once more " + string(r.Key))
		switch len(seen) % 7 {
		case 0:
			out = append(out, gone, again)
		case 1:
			out = append(out, gone)
		case 2:
			out = append(out, again)
		}
	}
	return out
}

// lastOfEach writes one key of each partition again.
func lastOfEach(records []reader.Record) []reader.Record {
	last := map[int32]reader.Record{}
	for _, r := range records {
		if readLegacy(r.Key) != nil {
			last[r.Partition] = reader.Record{Partition: r.Partition, Timestamp: time.Now().UnixMilli(), Key: r.Key, Value: []byte("at last")}
		}
	}
	return slices.Collect(maps.Values(last))
}

func countPadding(records []reader.Record) (n int) {
	for _, r := range records {
		if i := len(r.Headers) - 1; i >= 0 && string(r.Headers[i].Value) == "padding" {
			n++
		}
	}
	return n
}

func writeMarkers(t *testing.T, markers []marker) string {
	t.Helper()
	var list []any
	for _, m := range markers {
		list = append(list, map[string]any{"offsets": m})
	}
	content, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "markers.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// recoverAll runs recoveries. Those that stopped early, as releases before
// 0.4-strict do when nothing arrives for a second, are run again: on a busy
// machine that proves nothing.
func recoverAll(t *testing.T, ctx context.Context, c *testcluster.Cluster, jobs []java.Job) []java.Outcome {
	t.Helper()
	outcomes := make([]java.Outcome, len(jobs))
	left := make([]int, len(jobs))
	for i := range left {
		left[i] = i
	}
	for attempt := 1; len(left) > 0; attempt++ {
		var again []java.Job
		for _, i := range left {
			again = append(again, jobs[i])
		}
		got, err := java.Run(ctx, c.Kafka(), again...)
		if err != nil {
			t.Fatal(err)
		}
		var early []int
		for n, i := range left {
			outcomes[i] = got[n]
			if len(got[n].Unread) > 0 && got[n].Refused == "" {
				t.Logf("%s from %v stopped early, after a poll of %v: %v", jobs[i].Topic, jobs[i].Markers, got[n].LastPoll, got[n].Unread)
				early = append(early, i)
			}
		}
		if left = early; attempt == 5 && len(left) > 0 {
			t.Fatalf("%d recoveries stopped before the end, five times", len(left))
		}
	}
	return outcomes
}

// refuses says whether the marker does not fit the topic. That a release reads
// other keys than those of the topic is not the consumer's business.
func refuses(effects []report.Effect) bool {
	return slices.ContainsFunc(effects, func(e report.Effect) bool { return e.Code == report.EffectRefuse && e.Partition != nil })
}

// compareOutcomes is what a rehearsal must say of two recoveries.
func compareOutcomes(t *testing.T, runtime string, source, target java.Outcome) report.Rehearsal {
	t.Helper()
	old, unparseable := statesOf(t, source, readLegacy)
	fresh, strange := statesOf(t, target, readEscaped)
	if strange > 0 {
		t.Errorf("%d keys of the target cannot be parsed", strange)
	}
	traces := maps.Clone(old)
	if strings.HasPrefix(runtime, "0.4") { // a tombstone leaves nothing
		forget := func(_ pastKey, value *string) bool { return value == nil }
		maps.DeleteFunc(old, forget)
		maps.DeleteFunc(fresh, forget)
	}
	want := compareModels(old, fresh, traces)
	want.Unparseable = int64(unparseable)
	return want
}

// statesOf parses the keys of a recovery. Padding is none of the job's.
func statesOf(t *testing.T, o java.Outcome, parse func([]byte) []string) (states map[pastKey]*string, unparseable int) {
	t.Helper()
	states = map[pastKey]*string{}
	for key, value := range o.Entries {
		fields := parse([]byte(key))
		if fields == nil {
			unparseable++
			continue
		}
		if fields[0] == "rekey-padding" && value == nil {
			continue
		}
		sequence, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		k := pastKey{fields[0], sequence, fields[2], fields[3]}
		if _, twice := states[k]; twice {
			t.Errorf("two keys mean %+v", k)
		}
		states[k] = value
	}
	return states, unparseable
}

// readEscaped gives business key, sequence, event and action, or nil.
func readEscaped(key []byte) []string {
	fields := strings.Split(string(key), "_")
	if len(fields) != 4 {
		return nil
	}
	fields[0] = strings.NewReplacer("%5F", "_", "%25", "%").Replace(fields[0])
	return fields
}

// The two helpers above are the judge of what Java printed, so they are tried on
// what is known: one state under both forms of its key.
func TestReadEscaped(t *testing.T) {
	for i := range 60 {
		k := pastKey{seed.BusinessKey(i), int64(i), recoveryUUIDs[:36], recoveryUUIDs[37:]}
		sum := sha256.Sum256([]byte("v"))
		value := hex.EncodeToString(sum[:])
		a, _ := statesOf(t, java.Outcome{Entries: map[string]*string{k.legacy(): &value}}, readLegacy)
		b, _ := statesOf(t, java.Outcome{Entries: map[string]*string{k.escaped(): &value}}, readEscaped)
		if diff := cmp.Diff(a, b, cmpopts.EquateComparable(pastKey{})); diff != "" || len(a) != 1 {
			t.Errorf("%+v: %s", k, diff)
		}
	}
}
