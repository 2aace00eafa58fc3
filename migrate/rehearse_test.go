package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// The rehearsal is held against a model that knows what each record means from
// the moment it is written, so it has no parser; and that holds whole replays
// as maps, so it has no digests, no tables and no parts.

// pastKey is what a state key means.
type pastKey struct {
	business      string
	sequence      int64
	event, action string
}

func (k pastKey) legacy() string {
	return fmt.Sprintf("%s_%d_%s_%s", k.business, k.sequence, k.event, k.action)
}

func (k pastKey) escaped() string {
	k.business = strings.NewReplacer("%", "%25", "_", "%5F").Replace(k.business)
	return k.legacy()
}

// pastRecord is a record and what it means, nil for a key that means nothing.
type pastRecord struct {
	rewrite.Record
	means *pastKey
}

// pastLog is a topic: the records that are left of each partition, and its range.
type pastLog struct {
	records [][]pastRecord
	ranges  []logRange
}

// Read makes a pastLog a Source. It hands out few records at a time, and none at
// first, as a reader does that begins behind the last record left of a batch.
func (l *pastLog) Read(_ context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error) {
	if err := fn(nil); err != nil {
		return ReadStats{}, err
	}
	var batch []rewrite.Record
	for _, r := range l.records[span.Partition] {
		if r.Offset < span.From || r.Offset >= span.To {
			continue
		}
		if batch = append(batch, r.Record); len(batch) == 7 {
			if err := fn(batch); err != nil {
				return ReadStats{}, err
			}
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		return ReadStats{}, fn(batch)
	}
	return ReadStats{}, nil
}

func (l *pastLog) write(partition int32, r pastRecord) {
	r.Partition, r.Offset = partition, l.ranges[partition].end
	l.records[partition] = append(l.records[partition], r)
	l.ranges[partition].end++
}

func newPastLog(partitions int32) *pastLog {
	return &pastLog{records: make([][]pastRecord, partitions), ranges: make([]logRange, partitions)}
}

// past is the history of a job: its topic, and the ends of the topic at several
// moments, the last of which is now.
type past struct {
	partitions int32
	source     *pastLog
	moments    [][]int64
}

func pastUUID(text string) string { return keycodec.NameUUID([]byte(text)).String() }

// randomPast is a job that ran, and what the log cleaner and retention have left
// of its topic.
func randomPast(r *rand.Rand) past {
	partitions := 1 + r.Int32N(8)
	switch r.IntN(20) {
	case 0:
		partitions = 64
	case 1:
		partitions = 9 + r.Int32N(55)
	}
	p := randomRun(r, partitions)
	clean(r, p.source)
	for partition := range p.source.ranges {
		if l := &p.source.ranges[partition]; r.IntN(3) == 0 {
			l.start = r.Int64N(l.end + 1)
			p.source.records[partition] = slices.DeleteFunc(p.source.records[partition], func(x pastRecord) bool { return x.Offset < l.start })
		}
	}
	return p
}

// randomRun lets a job run: inputs with several actions each, states written
// again, deleted and created anew, sometimes a fresh start on the same topic.
func randomRun(r *rand.Rand, partitions int32) past {
	p := past{partitions: partitions}
	p.source = newPastLog(p.partitions)
	names := []string{"a", "a_1", "user_123", "user_124", "50%", "%5F", "é_ß", "_", "x", "tenant_7_3"}
	inputs := 5 + r.IntN(150)
	if partitions > 8 { // as many keys as it takes to write to most of them
		for i := range partitions {
			names = append(names, fmt.Sprintf("order-%d", i), fmt.Sprintf("%d_user", i))
		}
		inputs *= 3
	}
	names = names[:1+r.IntN(len(names))]
	next := map[string]int64{}
	written := map[string][]pastKey{}
	put := func(k pastKey, value []byte) {
		key := []byte(k.legacy())
		p.source.write(seed.Partition(key, p.partitions), pastRecord{Record: rewrite.Record{Key: key, Value: value}, means: &k})
	}
	value := func() []byte { return fmt.Appendf(nil, "%d", r.IntN(40)) }
	for range inputs {
		business := names[r.IntN(len(names))]
		old := written[business]
		switch n := r.IntN(100); {
		case n < 50 || len(old) == 0:
			sequence := next[business]
			next[business]++
			for action := range 1 + r.IntN(3) {
				k := pastKey{business, sequence, pastUUID(fmt.Sprint(business, sequence, r.IntN(2))), pastUUID(fmt.Sprint(action))}
				put(k, value())
				if r.IntN(3) == 0 {
					put(k, value())
				}
				written[business] = append(written[business], k)
			}
		case n < 62:
			put(old[r.IntN(len(old))], value())
		case n < 74:
			put(old[r.IntN(len(old))], nil)
		case n < 78:
			k := old[r.IntN(len(old))]
			put(k, nil)
			put(k, value())
		case n < 81:
			next[business] = 0
		case n < 88:
			key := []byte([]string{"heartbeat", "x_y", "a_07_b_c", "a_1_" + recoveryUUIDs + "\n"}[r.IntN(4)])
			p.source.write(r.Int32N(p.partitions), pastRecord{Record: rewrite.Record{Key: key, Value: value()}})
		case n < 94:
			p.source.ranges[r.Int32N(p.partitions)].end += 1 + r.Int64N(3) // a hole
		default:
			p.moments = append(p.moments, endsOf(p.source.ranges))
		}
	}
	p.moments = append(p.moments, endsOf(p.source.ranges))
	return p
}

// clean is the log cleaner: up to some offset it removes records that a later
// one of the same key replaces.
func clean(r *rand.Rand, l *pastLog) {
	for partition, records := range l.records {
		if r.IntN(2) == 0 {
			continue
		}
		dirty := r.Int64N(l.ranges[partition].end + 1)
		last := map[string]int64{}
		for _, x := range records {
			last[string(x.Key)] = x.Offset
		}
		l.records[partition] = slices.DeleteFunc(slices.Clone(records), func(x pastRecord) bool {
			return x.Offset < dirty && x.Offset < last[string(x.Key)]
		})
	}
}

// pastCopy is how a past is copied to a target.
type pastCopy struct {
	align    bool
	latest   bool      // history
	captures [][]int64 // the ends that plan and its extensions captured
	exact    marker    // not nil: align to it, and only keys with a record behind it
}

// copied is the target that apply would write.
func (p past) copied(r *rand.Rand, c pastCopy) *pastLog {
	target := newPastLog(p.partitions)
	padding := pastRecord{Record: rewrite.Record{Key: []byte("rekey-padding_0_" + strings.Repeat("0", 8) + "-0000-0000-0000-000000000000_00000000-0000-0000-0000-000000000000"),
		Headers: []rewrite.Header{{Key: []byte("rekey-source"), Value: []byte("padding")}}}}
	lastOf := map[string]int64{}
	for _, records := range p.source.records {
		for _, x := range records {
			lastOf[string(x.Key)] = x.Offset
		}
	}
	for partition := range p.partitions {
		target.write(partition, padding) // the fence of the lock
	}
	starts := make([]int64, p.partitions)
	for _, ends := range c.captures {
		for partition := range p.partitions {
			goal := ends[partition]
			if c.exact != nil {
				goal = c.exact[partition]
			}
			for c.align && target.ranges[partition].end < goal {
				target.write(partition, padding)
			}
		}
		queues := make([][]pastRecord, p.partitions)
		for partition, records := range p.source.records {
			last := map[string]int64{}
			for _, x := range records {
				if x.Offset >= starts[partition] && x.Offset < ends[partition] {
					last[string(x.Key)] = x.Offset
				}
			}
			for _, x := range records {
				switch {
				case x.means == nil, x.Offset < starts[partition], x.Offset >= ends[partition]:
				case c.latest && x.Offset < last[string(x.Key)]:
				case c.exact != nil && lastOf[string(x.Key)] < c.exact[int32(partition)]:
				default:
					queues[partition] = append(queues[partition], x)
				}
			}
		}
		for left := true; left; {
			left = false
			for _, partition := range r.Perm(int(p.partitions)) {
				n := min(r.IntN(4), len(queues[partition]))
				for _, x := range queues[partition][:n] {
					x.Headers = []rewrite.Header{{Key: []byte("rekey-source"), Value: fmt.Appendf(nil, "%d:%d", partition, x.Offset)}}
					x.Key = []byte(x.means.escaped())
					target.write(seed.Partition(x.Key, p.partitions), x)
				}
				queues[partition] = queues[partition][n:]
				left = left || len(queues[partition]) > 0
			}
		}
		starts = ends
	}
	return target
}

// modelReplay is what a runtime has after it recovered from a log; an empty
// pointer is an entry without a state. It is nil if the runtime refuses.
func (l *pastLog) modelReplay(runtime string, m marker) (states map[pastKey]*string, unparseable map[string]bool) {
	states, unparseable = map[pastKey]*string{}, map[string]bool{}
	for partition, records := range l.records {
		held := l.ranges[partition]
		from, named := m[int32(partition)]
		if outside := from < held.start || from > held.end; runtime == "0.4-strict" && (!named || outside) {
			return nil, nil
		} else if outside {
			from = held.start
		}
		for _, x := range records {
			switch {
			case !named, x.Offset < from:
			case len(x.Headers) > 0 && string(x.Headers[0].Value) == "padding":
			case x.means == nil:
				unparseable[string(x.Key)] = true
			case x.Value != nil:
				value := string(x.Value)
				states[*x.means] = &value
			case runtime[:3] == "0.4":
				delete(states, *x.means)
			default:
				states[*x.means] = nil
			}
		}
	}
	return states, unparseable
}

// modelRehearsal is what a rehearsal must come to.
func modelRehearsal(runtime string, m marker, source, target *pastLog) (want report.Rehearsal, refused bool) {
	old, unparseable := source.modelReplay(runtime, m)
	fresh, _ := target.modelReplay(runtime, m)
	refused = old == nil || fresh == nil
	// Whether a key was deleted behind the marker is seen in the log, not in
	// the replay of a runtime that forgets it.
	traces, _ := source.modelReplay("0.3", m)
	if old == nil {
		traces = nil
	}
	want = compareModels(old, fresh, traces)
	want.Unparseable = int64(len(unparseable))
	return want, refused
}

// compareModels is what a rehearsal must say of two replays; traces has all keys
// that the source's replay came upon.
func compareModels(old, fresh, traces map[pastKey]*string) (want report.Rehearsal) {
	lowest := map[string]int64{}
	for k, value := range old {
		if low, known := lowest[k.business]; value != nil && (!known || k.sequence < low) {
			lowest[k.business] = k.sequence
		}
	}
	for k, value := range old {
		if value == nil {
			continue
		}
		want.Source.States++
		switch now := fresh[k]; {
		case now == nil:
			want.Lost++
		case *now != *value:
			want.Different++
		default:
			want.Same++
		}
	}
	for k, now := range fresh {
		if now != nil {
			want.Target.States++
		}
		if value, has := old[k]; has && value != nil {
			continue
		}
		_, deleted := traces[k]
		low, recovers := lowest[k.business]
		switch {
		case now != nil && deleted:
			want.Different++
		case deleted:
		case recovers && k.sequence >= low:
			want.Confusable++
		case now != nil:
			want.Older++
		}
	}
	return want
}

// onlyCounts leaves of a rehearsal what the model says.
var onlyCounts = cmp.Options{
	cmpopts.IgnoreFields(report.Rehearsal{}, "Runtime", "Marker", "Markers", "Offsets", "Passed", "Summary", "Examples", "Restarted"),
	cmpopts.IgnoreFields(report.Replay{}, "Records", "Malformed", "Effects"),
}

func stageOf(r *rand.Rand, p past, target *pastLog) *stage {
	rules, err := DefaultPlanOptions().rules(p.partitions)
	if err != nil {
		panic(err)
	}
	return &stage{source: p.source, target: target, sourceLog: p.source.ranges, targetLog: target.ranges, captured: endsOf(p.source.ranges),
		rules: rules, prints: newFingerprinter(), hasher: newHasher(), readers: 4, keysAtOnce: 40 + r.Int64N(1000), count: &counter{progress: NoProgress{}}}
}

// check rehearses a marker under every runtime and compares with the model. It
// returns what the model says of release 0.3.
func (p past) check(t *testing.T, r *rand.Rand, target *pastLog, m marker) report.Rehearsal {
	t.Helper()
	s := stageOf(r, p, target)
	var of03 report.Rehearsal
	for _, runtime := range RuntimeNames() {
		want, refused := modelRehearsal(runtime, m, p.source, target)
		rules, err := recoveryOf(runtime)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.rehearse(context.Background(), rules, markerSet{name: "test", markers: []marker{m}})
		if err != nil {
			t.Fatal(err)
		}
		wantPass := !refused && runtime[:3] != "0.4" && want.Lost+want.Different+want.Confusable == 0 // 0.4 reads no escaped keys
		if got.Passed != wantPass {
			t.Errorf("runtime %s: passed %v, want %v: %s", runtime, got.Passed, wantPass, got.Summary)
		}
		if n := got.Lost + got.Different + got.Confusable; (n > 0) != (len(got.Examples) > 0) || int64(len(got.Examples)) > n {
			t.Errorf("runtime %s: %d examples of %d", runtime, len(got.Examples), n)
		}
		if diff := cmp.Diff(want, got, onlyCounts); diff != "" {
			t.Errorf("runtime %s, marker %v (-want +got):\n%s", runtime, m, diff)
		}
		if runtime == "0.3" {
			of03 = want
		}
	}
	return of03
}

// anyMarker names every partition somewhere from the log start to the end.
func (p past) anyMarker(r *rand.Rand) marker {
	m := marker{}
	for partition, held := range p.source.ranges {
		m[int32(partition)] = held.start + r.Int64N(held.end-held.start+1)
	}
	return m
}

// TestRehearseAgainstModel plays random histories for as long as a test may
// take. On an aligned target no marker of the old topic loses anything, under
// the rules of any runtime; on any other target, and on damaged ones, the
// rehearsal finds exactly what the model finds.
func TestRehearseAgainstModel(t *testing.T) {
	t.Parallel()
	atLeast := uint64(200)
	switch {
	case os.Getenv("REKEY_TORTURE") != "":
		atLeast = 5000
	case testing.Short():
		atLeast = 40
	}
	var histories, lossy, confused, exact int
	widest := map[bool]int{} // histories of 64 partitions, by whether latest
	for n := uint64(0); n < atLeast; n++ {
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(n, 7))
			p := randomPast(r)
			now := p.moments[len(p.moments)-1:]

			// One capture: any marker at all.
			latest := r.IntN(2) == 0
			target := p.copied(r, pastCopy{align: true, latest: latest, captures: now})
			if p.partitions == 64 {
				widest[latest]++
			}
			if r.IntN(2) == 0 {
				clean(r, target)
			}
			for range 3 {
				m := p.anyMarker(r)
				want := p.check(t, r, target, m)
				if want.Lost+want.Different > 0 {
					t.Errorf("aligned, marker %v: the model loses %d and changes %d states", m, want.Lost, want.Different)
				}
				if want.Confusable > 0 {
					confused++
				}
			}
			if want := p.check(t, r, target, markerAt(now[0])); want.Source.States > 0 {
				t.Errorf("at the end: %d states", want.Source.States)
			}

			// Several captures: any marker that some checkpoint took, before,
			// between and after them.
			var captures [][]int64
			for _, moment := range p.moments {
				if r.IntN(2) == 0 {
					captures = append(captures, moment)
				}
			}
			captures = append(captures, now[0])
			extended := p.copied(r, pastCopy{align: true, latest: r.IntN(2) == 0, captures: captures})
			for range 3 {
				m := markerAt(p.moments[r.IntN(len(p.moments))]) // before the log start, perhaps
				if want := p.check(t, r, extended, m); want.Lost+want.Different > 0 {
					t.Errorf("extended, marker %v, captures %v: the model loses %d and changes %d states", m, captures, want.Lost, want.Different)
				}
			}

			// The exact way: nothing but what the marker needs.
			m := p.anyMarker(r)
			want := p.check(t, r, p.copied(r, pastCopy{align: true, captures: now, exact: m}), m)
			if want.Lost+want.Different+want.Confusable+want.Older > 0 {
				t.Errorf("the exact way, marker %v: %+v", m, want)
			}
			exact++

			// Not aligned, or damaged: whatever the model finds.
			plain := p.copied(r, pastCopy{latest: r.IntN(2) == 0, captures: captures})
			for range 2 {
				if want := p.check(t, r, plain, p.anyMarker(r)); want.Lost > 0 {
					lossy++
				}
			}
			spoil(r, target)
			p.check(t, r, target, p.anyMarker(r))
			partial := p.anyMarker(r)
			for partition := range partial {
				switch r.IntN(4) {
				case 0:
					delete(partial, partition)
				case 1:
					partial[partition] = r.Int64N(p.source.ranges[partition].end + 20)
				}
			}
			p.check(t, r, target, partial)
			histories++
		})
		if !ok {
			return
		}
	}
	t.Logf("%d histories, %d of 64 partitions; states lost without alignment in %d, confusable in %d, exact in %d",
		histories, widest[false]+widest[true], lossy, confused, exact)
	if lossy == 0 || confused == 0 || !testing.Short() && (widest[false] == 0 || widest[true] == 0) {
		t.Error("the histories are too tame to prove anything")
	}
}

// spoil changes, removes and deletes some records of a log.
func spoil(r *rand.Rand, l *pastLog) {
	for partition, records := range l.records {
		records = slices.DeleteFunc(records, func(x pastRecord) bool { return x.means != nil && r.IntN(20) == 0 })
		for i := range records {
			if records[i].means != nil && r.IntN(20) == 0 {
				records[i].Value = []byte("damaged")
			}
			if records[i].means != nil && r.IntN(20) == 0 {
				records[i].Value = nil
			}
		}
		l.records[partition] = records
	}
}

// TestTranslatedMarkers: whatever lies at or after a marker in the source lies
// at or after its translation in the target, and the translation is not lower
// than it must be.
func TestTranslatedMarkers(t *testing.T) {
	t.Parallel()
	checked := 0
	for n := uint64(0); checked < 10_000; n++ {
		r := rand.New(rand.NewPCG(n, 9))
		p := randomPast(r)
		target := p.copied(r, pastCopy{align: r.IntN(2) == 0, latest: r.IntN(2) == 0, captures: p.moments})
		clean(r, target)
		var markers []marker
		for range 100 {
			partition := r.Int32N(p.partitions)
			held := p.source.ranges[partition]
			offset := held.start + r.Int64N(held.end-held.start+1) // holes included
			switch r.IntN(10) {
			case 0:
				offset = held.start
			case 1:
				offset = held.end
			}
			markers = append(markers, marker{partition: offset})
		}
		markers = append(markers, p.anyMarker(r), markerAt(endsOf(p.source.ranges)))
		translated, err := stageOf(r, p, target).translate(context.Background(), markers)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range markers {
			checkTranslation(t, target, m, translated[i])
			checked++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d markers", checked)
}

func checkTranslation(t *testing.T, target *pastLog, from, to marker) {
	t.Helper()
	if len(to) != len(target.records) {
		t.Fatalf("%v became %v: not every partition", from, to)
	}
	for partition, records := range target.records {
		position := to[int32(partition)]
		tight := position == target.ranges[partition].end
		for _, x := range records {
			var p int32
			var offset int64
			if n, _ := fmt.Sscanf(string(x.Headers[0].Value), "%d:%d", &p, &offset); n != 2 {
				continue // padding
			}
			if after, named := from[p]; named && offset >= after {
				if x.Offset < position {
					t.Errorf("marker %v: the record of %d:%d lies at %d of partition %d, before %d", from, p, offset, x.Offset, partition, position)
				}
				tight = tight || x.Offset == position
			}
		}
		if !tight {
			t.Errorf("marker %v: nothing at or after it lies at %d of partition %d", from, position, partition)
		}
	}
}

// TestSubtaskMarkers: the markers of several subtasks count as their lowest
// offsets.
func TestSubtaskMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	p := randomPast(r)
	target := p.copied(r, pastCopy{align: true, captures: p.moments[len(p.moments)-1:]})
	rules, err := recoveryOf("0.3")
	if err != nil {
		t.Fatal(err)
	}
	set := markerSet{name: "all", markers: []marker{p.anyMarker(r), p.anyMarker(r), p.anyMarker(r)}}
	lowest := maps.Clone(set.markers[0])
	for _, m := range set.markers[1:] {
		for partition, offset := range m {
			lowest[partition] = min(lowest[partition], offset)
		}
	}
	s := stageOf(r, p, target)
	several, err := s.rehearse(t.Context(), rules, set)
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.rehearse(t.Context(), rules, markerSet{name: "all", markers: []marker{lowest}})
	if err != nil {
		t.Fatal(err)
	}
	one.Markers = 3
	if diff := cmp.Diff(one, several); diff != "" {
		t.Error(diff)
	}
}

// TestVersionedMarkers: markers that hold the name and the id of their topic are
// those of 0.4-strict, which restores them on no other topic.
func TestVersionedMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	p := randomPast(r)
	s := stageOf(r, p, p.copied(r, pastCopy{align: true, captures: p.moments[len(p.moments)-1:]}))
	for _, runtime := range RuntimeNames() {
		rules, err := recoveryOf(runtime)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"", "action-state"} {
			got, err := s.rehearse(t.Context(), rules, markerSet{markers: []marker{p.anyMarker(r)}, topic: topic, topicID: topic})
			if err != nil {
				t.Fatal(err)
			}
			refused := slices.ContainsFunc(got.Target.Effects, func(e report.Effect) bool {
				return e.Stops() && strings.Contains(e.Text, "the topic action-state and its id")
			})
			if want := runtime == "0.4-strict" && topic != ""; refused != want {
				t.Errorf("runtime %s, topic %q: refused %v, want %v: %+v", runtime, topic, refused, want, got.Target.Effects)
			}
			if refused && got.Passed {
				t.Errorf("runtime %s passes: %s", runtime, got.Summary)
			}
		}
	}
}

// TestRehearseRepaired: a key that a repair gives a meaning is no state of the
// old job, so the new one has it without anything being confusable. One that a
// repair drops is left out, as are the null key and the empty one.
func TestRehearseRepaired(t *testing.T) {
	good, bad := pastKey{"user_1", 3, recoveryUUIDs[:36], recoveryUUIDs[37:]}, "user_1_3_"+recoveryUUIDs[:36]+"_"+strings.ToUpper(recoveryUUIDs[37:])
	other := good
	other.action = pastUUID("another")
	p := past{partitions: 1, source: newPastLog(1)}
	for _, key := range [][]byte{[]byte(good.legacy()), []byte(bad), []byte("heartbeat"), {}, nil, nil} {
		p.source.write(0, pastRecord{Record: rewrite.Record{Key: key, Value: []byte("v")}})
	}
	target := newPastLog(1)
	for _, k := range []pastKey{good, other} {
		target.write(0, pastRecord{Record: rewrite.Record{Key: []byte(k.escaped()), Value: []byte("v")}})
	}
	s := stageOf(rand.New(rand.NewPCG(1, 1)), p, target)
	parsed := keycodec.Key{BusinessKey: []byte("user_1"), Sequence: 3, KeyGroup: keycodec.NoKeyGroup,
		Event: uuid.MustParse(other.event), Action: uuid.MustParse(other.action)}
	s.rules.Repairs = map[string]*rewrite.Repair{bad: {Action: rewrite.RepairRewrite, Key: parsed}, "heartbeat": {Action: rewrite.RepairDrop}}
	rules, err := recoveryOf("0.3")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.rehearse(t.Context(), rules, markerSet{markers: []marker{{0: 0}}})
	if err != nil {
		t.Fatal(err)
	}
	want := report.Rehearsal{Same: 1, Repaired: 1, Unparseable: 3, Source: report.Replay{States: 1}, Target: report.Replay{States: 2}}
	if diff := cmp.Diff(want, got, onlyCounts); diff != "" || !got.Passed {
		t.Errorf("passed %v: %s", got.Passed, diff)
	}
}

// TestRehearseOnBroker plays some histories through a real log: the bulk is
// copied while the job runs, the rest after it stopped, and half of the topics
// are compacted. The markers are those of checkpoints before, between and after
// the two captures.
func TestRehearseOnBroker(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t)
	histories := uint64(6)
	if c.Real() {
		histories = 20
	}
	for n := range histories {
		r := rand.New(rand.NewPCG(n, 11))
		run := randomRun(r, 1+r.Int32N(8))
		topic := c.CreateTopic(t, "source", run.partitions, map[string]string{"cleanup.policy": "compact"})
		m := migrationOf(t, c, topic, func(o *PlanOptions) {
			if n%3 == 0 {
				o.History = rewrite.HistoryLatest
			}
		})
		meanings := map[report.Position]*pastKey{}
		var markers []string
		done := make([]int64, run.partitions)
		halfway := len(run.moments) / 2
		for i, moment := range run.moments {
			produceRun(t, m, run, done, moment, meanings)
			done = moment
			if i == halfway {
				if n%2 == 0 {
					c.Compact(t, topic)
				}
				m.run.AllowLiveSource = true
				m.planAndApply(t)
			}
			markers = append(markers, writeMarker(t, m.ends(t, topic)))
		}
		m.options.Extend = true
		m.run.AllowLiveSource = false
		m.planAndApply(t)
		m.verify(t)
		if n%4 < 2 && c.Real() { // the embedded broker compacts the source as well, and moves its log start
			c.Compact(t, m.target)
		}
		evidence, err := Rehearse(testcluster.Context(t), RehearseOptions{RunOptions: m.run, Runtimes: RuntimeNames(), Markers: append(markers, MarkerAtEnd)}, m.env)
		if err != nil && !errors.Is(err, ErrDifferent) {
			t.Fatal(err)
		}
		if want := len(RuntimeNames()) * (len(markers) + 1); len(evidence.Rehearsals) != want {
			t.Fatalf("%d rehearsals, want %d", len(evidence.Rehearsals), want)
		}
		source, target := readPast(t, c, topic, meanings), readPast(t, c, m.target, meanings)
		for _, got := range evidence.Rehearsals {
			offsets := marker{}
			for _, at := range got.Offsets {
				offsets[at.Partition] = at.Offset
			}
			want, refused := modelRehearsal(got.Runtime, offsets, source, target)
			if diff := cmp.Diff(want, got, onlyCounts); diff != "" {
				t.Errorf("history %d, runtime %s, marker %v (-want +got):\n%s", n, got.Runtime, offsets, diff)
			}
			if !refused && got.Lost+got.Different > 0 {
				t.Errorf("history %d, runtime %s, marker %v: %s", n, got.Runtime, offsets, got.Summary)
			}
		}
	}
}

// produceRun writes what a run wrote between two moments, and notes what it
// means at which position.
func produceRun(t *testing.T, m *migration, run past, from, to []int64, meanings map[report.Position]*pastKey) {
	t.Helper()
	for partition, records := range run.source.records {
		var batch seed.Batch
		var means []*pastKey
		for _, x := range records {
			if x.Offset >= from[partition] && x.Offset < to[partition] {
				batch.Records = append(batch.Records, seed.Record{Key: x.Key, Value: x.Value, Timestamp: time.Now().UnixMilli()})
				means = append(means, x.means)
			}
		}
		if len(means) == 0 {
			continue
		}
		first, err := seed.ProduceBatch(testcluster.Context(t), m.client, m.source, int32(partition), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range means {
			meanings[report.Position{Partition: int32(partition), Offset: first + int64(i)}] = means[i]
		}
	}
}

func writeMarker(t *testing.T, ends []int64) string {
	t.Helper()
	content, err := json.Marshal(map[string]any{"offsets": markerAt(ends)})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "marker.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// readPast reads a topic. A record of the target means what the source record
// that it came from meant when it was written.
func readPast(t *testing.T, c *testcluster.Cluster, topic string, meanings map[report.Position]*pastKey) *pastLog {
	t.Helper()
	ranges, err := reader.Ranges(testcluster.Context(t), c.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	log := newPastLog(int32(len(ranges)))
	for partition, held := range ranges {
		log.ranges[partition] = logRange{held.Start, held.End}
	}
	for _, x := range c.Read(t, topic) {
		r := pastRecord{Record: rewrite.Record{Partition: x.Partition, Offset: x.Offset, Key: x.Key, Value: x.Value}}
		at := report.Position{Partition: x.Partition, Offset: x.Offset}
		for _, header := range x.Headers {
			r.Headers = append(r.Headers, rewrite.Header{Key: []byte(header.Key), Value: header.Value})
			if from, ok := readPosition(string(header.Value)); ok {
				at = report.Position{Partition: from.Partition, Offset: from.Offset}
			}
		}
		r.means = meanings[at]
		log.records[x.Partition] = append(log.records[x.Partition], r)
	}
	return log
}
