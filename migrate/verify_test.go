package migrate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/report"
	"rekey/rewrite"
)

// migration is a source topic, the plan for it and its target.
type migration struct {
	cluster        *testcluster.Cluster
	client         *kgo.Client
	source, target string
	options        PlanOptions
	run            RunOptions
	env            Environment
}

// smallTopic has one of everything, and no null keys: see TestEndToEnd.
func smallTopic() seed.Options {
	return seed.Options{Seed: 3, Partitions: 3, Records: 240, Keys: 24, Tombstones: 24, Unparseable: 18,
		EmptyValues: 5, NullText: 5, Headers: 4, Jitter: 5000}
}

// newMigration writes a generated topic and prepares a plan for it.
func newMigration(t testing.TB, c *testcluster.Cluster, o seed.Options, change func(*PlanOptions)) *migration {
	t.Helper()
	source := c.Topic(t, "source")
	if _, err := seed.Write(testcluster.Context(t), c.Addrs(), source, o, nil); err != nil {
		t.Fatal(err)
	}
	return migrationOf(t, c, source, change)
}

// migrationOf prepares a plan for a topic that is there.
func migrationOf(t testing.TB, c *testcluster.Cluster, source string, change func(*PlanOptions)) *migration {
	t.Helper()
	m := &migration{cluster: c, client: c.Client(t), source: source, target: c.Topic(t, "target"), options: DefaultPlanOptions()}
	m.options.Connections.Source.Bootstrap = c.Addrs()
	m.options.Source, m.options.Target = m.source, m.target
	m.options.RunDir = filepath.Join(t.TempDir(), "run")
	m.options.OnUnparseable = rewrite.PolicyQuarantine
	if change != nil {
		change(&m.options)
	}
	m.run = RunOptions{Connections: m.options.Connections, RunDir: m.options.RunDir}
	m.env = Environment{Version: "test", Now: time.Now, Progress: NoProgress{}, Logf: t.Logf}
	return m
}

func (m *migration) plan(t testing.TB) {
	t.Helper()
	if _, err := Plan(testcluster.Context(t), m.options, m.env); err != nil {
		t.Fatal("plan:", err)
	}
}

func (m *migration) apply(t testing.TB) *report.Apply {
	t.Helper()
	evidence, err := Apply(testcluster.Context(t), m.run, m.env)
	if err != nil {
		t.Fatal("apply:", err)
	}
	return evidence
}

func (m *migration) planAndApply(t testing.TB) *migration {
	t.Helper()
	m.plan(t)
	m.apply(t)
	return m
}

// verify demands that the target is accepted.
func (m *migration) verify(t testing.TB) *report.Verify {
	t.Helper()
	v, err := Verify(testcluster.Context(t), m.run, m.env)
	if err != nil {
		for _, d := range v.Differences {
			t.Errorf("%+v", d)
		}
		t.Fatal("verify:", err)
	}
	if !v.Equal || v.Total != 0 || len(v.Differences) != 0 {
		t.Fatalf("verify succeeds with %+v", v)
	}
	return v
}

// model is what the options ask for.
func (m *migration) model(t testing.TB) model {
	t.Helper()
	out := model{to: m.options.To, history: string(m.options.History), policy: string(m.options.OnUnparseable)}
	if m.options.Align == AlignSourceEnd {
		out.align = m.ends(t, m.source)
	}
	return out
}

func (m *migration) check(t testing.TB) {
	t.Helper()
	modelCheck(t, m.cluster, m.source, m.target, m.model(t))
}

func (m *migration) ends(t testing.TB, topic string) []int64 {
	t.Helper()
	ranges, err := reader.Ranges(testcluster.Context(t), m.cluster.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]int64, len(ranges))
	for partition, r := range ranges {
		ends[partition] = r.End
	}
	return ends
}

// replace deletes a topic and writes records to a new one of that name, with
// the same settings. The evidence of apply goes, since it names the old one.
func (m *migration) replace(t testing.TB, topic string, partitions int32, records []reader.Record) {
	t.Helper()
	ctx := testcluster.Context(t)
	all, err := seed.DescribeConfig(ctx, m.client, topic)
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]string{}
	for name, c := range all {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil {
			configs[name] = *c.Value
		}
	}
	m.deleteTopic(t, topic)
	err = wire.Poll(ctx, func() (bool, error) {
		err := seed.CreateTopic(ctx, m.client, topic, partitions, -1, configs)
		return !errors.Is(err, kerr.TopicAlreadyExists), err // a deletion takes a moment
	})
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, topic, records)
	if err := os.Remove(filepath.Join(m.run.RunDir, applyFileName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func (m *migration) write(t testing.TB, topic string, records []reader.Record) {
	t.Helper()
	ctx := testcluster.Context(t)
	by := map[int32][]reader.Record{}
	for _, r := range records {
		by[r.Partition] = append(by[r.Partition], r)
	}
	for partition, rs := range by {
		if _, err := seed.ProduceBatch(ctx, m.client, topic, partition, seed.Batch{Records: rs}); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *migration) deleteTopic(t testing.TB, topic string) {
	t.Helper()
	if err := m.tryDeleteTopic(t, topic); err != nil {
		t.Fatal(err)
	}
}

func (m *migration) tryDeleteTopic(t testing.TB, topic string) error {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 30_000, []string{topic}
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(testcluster.Context(t), m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	return err
}

// refused demands an exit code and that the message names each text.
func refused(t testing.TB, err error, exit int, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want exit code %d", exit)
	}
	if got := ExitCode(err); got != exit {
		t.Errorf("exit code %d, want %d: %v", got, exit, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// cloneRecords copies what a mutation may change.
func cloneRecords(records []reader.Record) []reader.Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].Headers = slices.Clone(out[i].Headers)
	}
	return out
}

// Plan, apply and verify, then the model, over the choices that change what is
// written.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	type choice struct {
		to      string
		history rewrite.History
		policy  rewrite.Policy
		align   string
		targets int32
		codec   seed.Codec
	}
	var choices []choice
	for i, to := range []string{"escaped", "length-prefixed"} {
		for j, history := range []rewrite.History{rewrite.HistoryAll, rewrite.HistoryLatest} {
			for k, policy := range []rewrite.Policy{rewrite.PolicyQuarantine, rewrite.PolicyCopy} {
				choices = append(choices, choice{to, history, policy, AlignSourceEnd, 0, seed.Codec(i + j + k)})
			}
		}
		choices = append(choices, choice{to, rewrite.HistoryAll, rewrite.PolicyCopy, AlignNone, 2, wire.Zstd},
			choice{to, rewrite.HistoryLatest, rewrite.PolicyQuarantine, AlignNone, 7, wire.LZ4})
	}
	cluster := testcluster.Start(t)
	for _, c := range choices {
		t.Run(fmt.Sprintf("%s,%s,%s,%s,%d", c.to, c.history, c.policy, c.align, c.targets), func(t *testing.T) {
			topic := smallTopic()
			topic.Codec, topic.NullKeys = c.codec, true
			m := newMigration(t, cluster, topic, func(o *PlanOptions) {
				o.To, o.History, o.OnUnparseable, o.Align, o.TargetPartitions = c.to, c.history, c.policy, c.align, c.targets
			})
			before := cluster.Read(t, m.source)
			m.planAndApply(t)
			v := m.verify(t)
			if v.Method != "exact" || v.Superseded != 0 || v.Demanded != v.Found {
				t.Errorf("verify: %s, %d superseded, %d demanded, %d found", v.Method, v.Superseded, v.Demanded, v.Found)
			}
			m.check(t)
			if after := cluster.Read(t, m.source); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Error("the source changed")
			}
			if again := m.apply(t); !again.Nothing || again.Written != 0 {
				t.Errorf("apply after success: %+v", again)
			}
			m.check(t)
		})
	}
}

// A source of several captures, with a log start above 0 and with transactions,
// aborted ones too.
func TestEndToEndTransactions(t *testing.T) {
	const ids = "a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"
	cluster := testcluster.Start(t)
	text := "partitions 2\nconfig cleanup.policy=compact,delete\nconfig retention.ms=-1\n"
	for i := range 12 {
		text += fmt.Sprintf("* now \"k_%d_%d_%s\" v%d\n", i%3, i, ids, i)
	}
	text += "begin\n"
	for i := range 6 {
		text += fmt.Sprintf("* now \"t_%d_%d_%s\" committed\n", i, i, ids)
	}
	text += "commit\nbegin\n"
	for i := range 6 {
		text += fmt.Sprintf("* now \"t_%d_%d_%s\" aborted h=1\n", i, i, ids)
	}
	text += "abort\ndelete-before 0 3\ndelete-before 1 2\n"
	source := cluster.Seed(t, "source", text)
	for _, isolation := range []string{IsolationUncommitted, IsolationCommitted} {
		t.Run(isolation, func(t *testing.T) {
			m := migrationOf(t, cluster, source, func(o *PlanOptions) { o.Isolation = isolation })
			m.planAndApply(t)
			m.verify(t)
			level := reader.ReadUncommitted
			if isolation == IsolationCommitted {
				level = reader.ReadCommitted
			}
			records, err := reader.ReadIsolated(testcluster.Context(t), cluster.Addrs(), source, level)
			if err != nil {
				t.Fatal(err)
			}
			if problems := m.model(t).problems(records, cluster.Read(t, m.target), 2); len(problems) > 0 {
				t.Error(strings.Join(problems, "\n"))
			}
		})
	}
}

// damage is one way to spoil a finished target. It returns nil where the target
// has nothing to spoil in this way. Offsets are given anew afterwards.
type damage struct {
	name  string
	spoil func(*rand.Rand, []reader.Record) []reader.Record
}

// damages are all kinds. Some leave a target intact now and then, such as the
// swap of two records that are alike: the model tells.
var damages = []damage{
	{"prefix dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		first := pick(r, rs, isMigrated)
		n := 1 + r.IntN(5)
		return slices.DeleteFunc(rs, func(x reader.Record) bool {
			if x.Partition != rs[first].Partition || !isMigrated(x) || n == 0 {
				return false
			}
			n--
			return true
		})
	}},
	{"prefix dropped with its padding", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		cut := rs[pick(r, rs, isMigrated)]
		return slices.DeleteFunc(rs, func(x reader.Record) bool { return x.Partition == cut.Partition && x.Offset <= cut.Offset })
	}},
	{"tail dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		cut := rs[pick(r, rs, isMigrated)]
		return slices.DeleteFunc(rs, func(x reader.Record) bool { return x.Partition == cut.Partition && x.Offset >= cut.Offset })
	}},
	{"record dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, isMigrated)
		return slices.Delete(rs, i, i+1)
	}},
	{"last record of a key dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, isMigrated)
		for j := range rs {
			if string(rs[j].Key) == string(rs[i].Key) && isMigrated(rs[j]) {
				i = max(i, j)
			}
		}
		return slices.Delete(rs, i, i+1)
	}},
	{"key dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		key := string(rs[pick(r, rs, isMigrated)].Key)
		return slices.DeleteFunc(rs, func(x reader.Record) bool { return string(x.Key) == key })
	}},
	{"tombstone dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, func(x reader.Record) bool { return isMigrated(x) && x.Value == nil })
		return slices.Delete(rs, i, i+1)
	}},
	{"duplicate beside it", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, isMigrated)
		return slices.Insert(rs, i, rs[i])
	}},
	{"duplicate at the end", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		return append(rs, rs[pick(r, rs, isMigrated)])
	}},
	{"duplicate in another partition", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		x := rs[pick(r, rs, isMigrated)]
		x.Partition = (x.Partition + 1 + r.Int32N(2)) % 3
		return append(rs, x)
	}},
	{"duplicate of a tombstone in another partition", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		x := rs[pick(r, rs, func(x reader.Record) bool { return isMigrated(x) && x.Value == nil })]
		x.Partition = (x.Partition + 1 + r.Int32N(2)) % 3
		return append(rs, x)
	}},
	{"one bit of a value", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Value) == 0 {
			return false
		}
		x.Value = slices.Clone(x.Value)
		x.Value[r.IntN(len(x.Value))] ^= 1 << r.IntN(8)
		return true
	})},
	{"value cut", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Value) == 0 {
			return false
		}
		x.Value = x.Value[:r.IntN(len(x.Value))]
		return true
	})},
	{"value of another record", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		rs[pick(r, rs, isMigrated)].Value = rs[pick(r, rs, isMigrated)].Value
		return rs
	}},
	{"tombstone for value", change(func(_ *rand.Rand, x *reader.Record) bool {
		if x.Value == nil {
			return false
		}
		x.Value = nil
		return true
	})},
	{"value for tombstone", change(func(_ *rand.Rand, x *reader.Record) bool {
		if x.Value != nil {
			return false
		}
		x.Value = []byte("null")
		return true
	})},
	{"empty for null", change(func(_ *rand.Rand, x *reader.Record) bool {
		if x.Value != nil {
			return false
		}
		x.Value = []byte{}
		return true
	})},
	{"null for empty", change(func(_ *rand.Rand, x *reader.Record) bool {
		if x.Value == nil || len(x.Value) > 0 {
			return false
		}
		x.Value = nil
		return true
	})},
	{"header added", change(func(r *rand.Rand, x *reader.Record) bool {
		at := r.IntN(len(x.Headers))
		x.Headers = slices.Insert(x.Headers, at, reader.Header{Key: "extra", Value: nil})
		return true
	})},
	{"header repeated", change(func(r *rand.Rand, x *reader.Record) bool {
		at := r.IntN(len(x.Headers))
		x.Headers = slices.Insert(x.Headers, at, x.Headers[at])
		return true
	})},
	{"header removed", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Headers) < 2 {
			return false
		}
		at := r.IntN(len(x.Headers) - 1)
		x.Headers = slices.Delete(x.Headers, at, at+1)
		return true
	})},
	{"headers reordered", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Headers) < 3 {
			return false
		}
		at := r.IntN(len(x.Headers) - 2)
		x.Headers[at], x.Headers[at+1] = x.Headers[at+1], x.Headers[at]
		return true
	})},
	{"header value changed", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Headers) < 2 {
			return false
		}
		h := &x.Headers[r.IntN(len(x.Headers)-1)]
		switch {
		case h.Value == nil:
			h.Value = []byte{}
		case len(h.Value) == 0:
			h.Value = nil
		default:
			h.Value = append(slices.Clone(h.Value), ' ')
		}
		return true
	})},
	{"header name changed", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Headers) < 2 {
			return false
		}
		x.Headers[r.IntN(len(x.Headers)-1)].Key += "s"
		return true
	})},
	{"header's name and value shifted", change(func(r *rand.Rand, x *reader.Record) bool {
		if len(x.Headers) < 2 {
			return false
		}
		h := &x.Headers[r.IntN(len(x.Headers)-1)]
		if len(h.Value) == 0 {
			return false
		}
		h.Key, h.Value = h.Key+string(h.Value[:1]), h.Value[1:]
		return true
	})},
	{"timestamp", change(func(r *rand.Rand, x *reader.Record) bool {
		x.Timestamp += []int64{-1, 1, 1000, -x.Timestamp - 1}[r.IntN(4)]
		return true
	})},
	{"wrong partition", change(func(r *rand.Rand, x *reader.Record) bool {
		x.Partition = (x.Partition + 1 + r.Int32N(2)) % 3
		return true
	})},
	{"partitions exchanged", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		for i := range rs {
			rs[i].Partition = (rs[i].Partition + 1) % 3
		}
		return rs
	}},
	{"foreign record", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		x := rs[pick(r, rs, isMigrated)]
		x.Headers = x.Headers[:len(x.Headers)-1]
		return slices.Insert(rs, r.IntN(len(rs)+1), x)
	}},
	{"provenance removed", change(func(_ *rand.Rand, x *reader.Record) bool {
		x.Headers = x.Headers[:len(x.Headers)-1]
		return true
	})},
	{"provenance not last", change(func(_ *rand.Rand, x *reader.Record) bool {
		x.Headers = append(x.Headers, reader.Header{Key: "later"})
		return true
	})},
	{"provenance first", change(func(_ *rand.Rand, x *reader.Record) bool {
		n := len(x.Headers) - 1
		if n == 0 {
			return false
		}
		x.Headers = append([]reader.Header{x.Headers[n]}, x.Headers[:n]...)
		return true
	})},
	{"provenance of an offset beside it", change(func(r *rand.Rand, x *reader.Record) bool {
		p, _ := readPosition(provenanceOf(*x))
		p.Offset += []int64{-1, 1, 2, 100_000}[r.IntN(4)]
		setProvenance(x, fmt.Sprintf("%d:%d", p.Partition, p.Offset))
		return true
	})},
	{"provenance of another partition", change(func(r *rand.Rand, x *reader.Record) bool {
		p, _ := readPosition(provenanceOf(*x))
		setProvenance(x, fmt.Sprintf("%d:%d", p.Partition+1, p.Offset))
		return true
	})},
	{"provenance spelled otherwise", change(func(r *rand.Rand, x *reader.Record) bool {
		text := provenanceOf(*x)
		setProvenance(x, []string{"0" + text, "+" + text, text + " ", strings.Replace(text, ":", ":0", 1), text + ":0", "", "padding "}[r.IntN(7)])
		return true
	})},
	{"provenance null", change(func(_ *rand.Rand, x *reader.Record) bool {
		x.Headers[len(x.Headers)-1].Value = nil
		return true
	})},
	{"provenance says padding", change(func(_ *rand.Rand, x *reader.Record) bool {
		setProvenance(x, "padding")
		return true
	})},
	{"forged record", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		// Of any position, whether or not the source has something else there.
		at := pick(r, rs, isMigrated)
		x := cloneRecords(rs[at : at+1])[0]
		setProvenance(&x, fmt.Sprintf("%d:%d", r.IntN(3), r.IntN(100)))
		return slices.Insert(rs, r.IntN(len(rs)+1), x)
	}},
	{"forged tombstone of a new key", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		x := rs[pick(r, rs, isMigrated)]
		x.Key = append([]byte("new"), x.Key...)
		x.Value = nil
		x.Headers = []reader.Header{{Key: "rekey-source", Value: []byte(fmt.Sprintf("%d:%d", r.IntN(3), r.IntN(100)))}}
		return slices.Insert(rs, r.IntN(len(rs)+1), x)
	}},
	{"provenances exchanged", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i, j := pick(r, rs, isMigrated), pick(r, rs, isMigrated)
		a, b := provenanceOf(rs[i]), provenanceOf(rs[j])
		setProvenance(&rs[i], b)
		setProvenance(&rs[j], a)
		return rs
	}},
	{"two records of a key exchanged", sameKey(func(a, b *reader.Record) { *a, *b = *b, *a })},
	{"two records of a key exchanged, provenance in order", sameKey(func(a, b *reader.Record) {
		p, q := provenanceOf(*a), provenanceOf(*b)
		*a, *b = *b, *a
		setProvenance(a, p)
		setProvenance(b, q)
	})},
	{"two values of a key exchanged", sameKey(func(a, b *reader.Record) { a.Value, b.Value = b.Value, a.Value })},
	{"neighbours exchanged", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, isMigrated)
		if i+1 == len(rs) || rs[i+1].Partition != rs[i].Partition {
			return nil
		}
		rs[i], rs[i+1] = rs[i+1], rs[i]
		return rs
	}},
	{"two keys exchanged", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i, j := pick(r, rs, isMigrated), pick(r, rs, isMigrated)
		rs[i].Key, rs[j].Key = rs[j].Key, rs[i].Key
		return rs
	}},
	{"key of another record", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		rs[pick(r, rs, isMigrated)].Key = rs[pick(r, rs, isMigrated)].Key
		return rs
	}},
	{"key not canonical", change(func(r *rand.Rand, x *reader.Record) bool {
		key := string(x.Key)
		switch r.IntN(4) {
		case 0:
			key = strings.Replace(key, "%5F", "%5f", 1)
		case 1:
			key = strings.Replace(key, "%5F", "_", 1)
		case 2:
			key = strings.ToUpper(key)
		case 3:
			key = " " + key
		}
		x.Key = []byte(key)
		return true
	})},
	{"key null", change(func(_ *rand.Rand, x *reader.Record) bool { x.Key = nil; return true })},
	{"key empty", change(func(_ *rand.Rand, x *reader.Record) bool { x.Key = []byte{}; return true })},
	{"padding with a value", pad(func(_ *rand.Rand, x *reader.Record) { x.Value = []byte{} })},
	{"padding with another key", pad(func(_ *rand.Rand, x *reader.Record) { x.Key = append([]byte("x"), x.Key...) })},
	{"padding with another header", pad(func(_ *rand.Rand, x *reader.Record) {
		x.Headers = append([]reader.Header{{Key: "a"}}, x.Headers...)
	})},
	{"padding without header", pad(func(_ *rand.Rand, x *reader.Record) { x.Headers = nil })},
	{"padding with a provenance", pad(func(_ *rand.Rand, x *reader.Record) { setProvenance(x, "0:0") })},
	{"padding too short", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		partition, n := r.Int32N(3), 1+r.IntN(10)
		return slices.DeleteFunc(rs, func(x reader.Record) bool {
			if x.Partition != partition || isMigrated(x) || n == 0 {
				return false
			}
			n--
			return true
		})
	}},
	{"padding too late", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		i := pick(r, rs, isMigrated)
		for j := range rs { // the first record of the partition goes to its front
			if rs[j].Partition == rs[i].Partition {
				x := rs[i]
				rs = slices.Delete(rs, i, i+1)
				return slices.Insert(rs, j, x)
			}
		}
		return nil
	}},
	{"padding more than needed", func(r *rand.Rand, rs []reader.Record) []reader.Record {
		return slices.Insert(rs, r.IntN(len(rs)+1), rs[pick(r, rs, func(x reader.Record) bool { return !isMigrated(x) })])
	}},
	{"nothing", func(_ *rand.Rand, rs []reader.Record) []reader.Record { return rs }},
}

func provenanceOf(r reader.Record) string {
	if n := len(r.Headers) - 1; n >= 0 && r.Headers[n].Key == "rekey-source" {
		return string(r.Headers[n].Value)
	}
	return ""
}

func setProvenance(r *reader.Record, text string) {
	r.Headers = slices.Clone(r.Headers)
	r.Headers[len(r.Headers)-1] = reader.Header{Key: "rekey-source", Value: []byte(text)}
}

// isMigrated says whether a record came from the source and is still marked so.
func isMigrated(r reader.Record) bool {
	_, ok := readPosition(provenanceOf(r))
	return ok
}

// pick is the number of a random record of a kind that is always there.
func pick(r *rand.Rand, rs []reader.Record, kind func(reader.Record) bool) int {
	start := r.IntN(len(rs))
	for i := range rs {
		if at := (start + i) % len(rs); kind(rs[at]) {
			return at
		}
	}
	panic("the target has no such record")
}

// change spoils one migrated record.
func change(f func(*rand.Rand, *reader.Record) bool) func(*rand.Rand, []reader.Record) []reader.Record {
	return func(r *rand.Rand, rs []reader.Record) []reader.Record {
		for range 50 {
			if f(r, &rs[pick(r, rs, isMigrated)]) {
				return rs
			}
		}
		return nil
	}
}

// pad spoils one padding record.
func pad(f func(*rand.Rand, *reader.Record)) func(*rand.Rand, []reader.Record) []reader.Record {
	return func(r *rand.Rand, rs []reader.Record) []reader.Record {
		f(r, &rs[pick(r, rs, func(x reader.Record) bool { return provenanceOf(x) == "padding" })])
		return rs
	}
}

// sameKey spoils two records of one key.
func sameKey(f func(a, b *reader.Record)) func(*rand.Rand, []reader.Record) []reader.Record {
	return func(r *rand.Rand, rs []reader.Record) []reader.Record {
		for range 50 {
			i := pick(r, rs, isMigrated)
			for j := i + 1; j < len(rs); j++ {
				if string(rs[j].Key) == string(rs[i].Key) && isMigrated(rs[j]) {
					f(&rs[i], &rs[j])
					return rs
				}
			}
		}
		return nil
	}
}

// asWritten orders records by partition and gives them the offsets that a new
// topic will.
func asWritten(rs []reader.Record) []reader.Record {
	slices.SortStableFunc(rs, func(a, b reader.Record) int { return int(a.Partition - b.Partition) })
	next := map[int32]int64{}
	for i := range rs {
		rs[i].Offset = next[rs[i].Partition]
		next[rs[i].Partition]++
	}
	return rs
}

// randomSeed is printed by every test that uses it, and can be given again.
func randomSeed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("REKEY_SEED"); given != "" {
		n, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatalf("REKEY_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("REKEY_SEED=%d", seed)
	return seed
}

// spoiled is a good target after one to three damages, with what the model says
// of it. Round n uses damage n first, so that none is left to chance.
func spoiled(r *rand.Rand, n int, good []reader.Record, judge func([]reader.Record) []string) (names []string, target []reader.Record, problems []string) {
	target = cloneRecords(good)
	first := damages[n%len(damages)]
	if out := first.spoil(r, target); out != nil {
		names, target = append(names, first.name), asWritten(out)
	}
	for r.IntN(6) == 0 && len(names) < 3 {
		more := damages[r.IntN(len(damages))]
		if out := more.spoil(r, target); out != nil {
			names, target = append(names, more.name), asWritten(out)
		}
	}
	return names, target, judge(target)
}

// Every kind of damage, alone and together, in random places: verify finds it,
// and finds nothing in a target that the model accepts.
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "a topic is deleted and written anew for each of many damages")
	rounds := 400
	if os.Getenv("REKEY_TORTURE") != "" {
		rounds = 10_000
	}
	start := randomSeed(t)
	r := rand.New(rand.NewPCG(start, 1))
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), nil).planAndApply(t)
	m.check(t)
	model, source, good := m.model(t), cluster.Read(t, m.source), cluster.Read(t, m.target)
	found, intact := map[string]int{}, 0
	untried := func() (names []string) { // alone
		for _, d := range damages {
			if harmless := d.name == "nothing" || d.name == "padding more than needed"; found[d.name] == 0 && !harmless {
				names = append(names, d.name)
			}
		}
		return names
	}
	// Which record a damage may befall is drawn: rarely, one takes a few turns more.
	n := 0
	for ; n < rounds || n < 10*rounds && len(untried()) > 0; n++ {
		names, target, problems := spoiled(r, n, good, func(rs []reader.Record) []string { return model.problems(source, rs, 3) })
		m.replace(t, m.target, 3, target)
		v, err := Verify(testcluster.Context(t), m.run, m.env)
		switch {
		case len(problems) == 0 && err != nil:
			t.Fatalf("round %d, %v: false alarm: %v %+v", n, names, err, v.Differences)
		case len(problems) == 0:
			intact++
		case err == nil:
			t.Fatalf("round %d, %v: not found: %v", n, names, problems)
		case ExitCode(err) != 5 || !errors.Is(err, ErrDifferent) || v.Equal || v.Total == 0 || len(v.Differences) == 0:
			t.Fatalf("round %d, %v: exit code %d: %v; %+v", n, names, ExitCode(err), err, v)
		default:
			if len(names) == 1 {
				found[names[0]]++
			}
		}
	}
	if names := untried(); len(names) > 0 {
		t.Errorf("never tried alone: %q", names)
	}
	t.Logf("%d rounds: %d damaged and found, %d intact and accepted", n, n-intact, intact)
	if intact == 0 {
		t.Error("no target was left intact: false alarms were not tried")
	}
}

// What is written into verify.json, and which kind each damage is reported as.
func TestVerifyNamesDamage(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), nil).planAndApply(t)
	good := cluster.Read(t, m.target)
	value := slices.IndexFunc(good, func(r reader.Record) bool { return isMigrated(r) && len(r.Value) > 0 && len(r.Headers) > 2 })
	tombstone := slices.IndexFunc(good, func(r reader.Record) bool { return isMigrated(r) && r.Value == nil })
	const anyTotal = -1
	padding := slices.IndexFunc(good, func(r reader.Record) bool { return provenanceOf(r) == "padding" })
	for _, c := range []struct {
		name  string
		at    int
		spoil func([]reader.Record, int) []reader.Record
		kind  string
		total int64 // anyTotal where what is out of place also breaks the order
	}{
		{"value", value, func(rs []reader.Record, i int) []reader.Record { rs[i].Value = []byte("x"); return rs }, "value", 1},
		{"tombstone for value", value, func(rs []reader.Record, i int) []reader.Record { rs[i].Value = nil; return rs }, "value", 1},
		{"empty for null", tombstone, func(rs []reader.Record, i int) []reader.Record { rs[i].Value = []byte{}; return rs }, "value", 1},
		{"timestamp", value, func(rs []reader.Record, i int) []reader.Record { rs[i].Timestamp++; return rs }, "timestamp", 1},
		{"header", value, func(rs []reader.Record, i int) []reader.Record { rs[i].Headers[0].Key = "y"; return rs }, "headers", 1},
		{"partition", value, func(rs []reader.Record, i int) []reader.Record {
			rs[i].Partition = (rs[i].Partition + 1) % 3
			return rs
		}, "partition", anyTotal},
		{"duplicate", value, func(rs []reader.Record, i int) []reader.Record { return slices.Insert(rs, i, rs[i]) }, "duplicate", 1},
		{"order", value, func(rs []reader.Record, i int) []reader.Record { return append(rs, rs[i]) }, "order", 1},
		{"copy elsewhere", value, func(rs []reader.Record, i int) []reader.Record {
			x := rs[i]
			x.Partition = (x.Partition + 1) % 3
			return append(rs, x)
		}, "order", 1},
		{"copy of a tombstone elsewhere", tombstone, func(rs []reader.Record, i int) []reader.Record {
			// In order, so that nothing but its partition is wrong.
			x := rs[i]
			x.Partition = (x.Partition + 1) % 3
			from, _ := readPosition(provenanceOf(x))
			at := slices.IndexFunc(rs, func(y reader.Record) bool {
				p, ok := readPosition(provenanceOf(y))
				return ok && y.Partition == x.Partition && p.Partition == from.Partition && p.Offset > from.Offset
			})
			if at < 0 {
				return append(rs, x)
			}
			return slices.Insert(rs, at, x)
		}, "partition", 1},
		{"foreign", value, func(rs []reader.Record, i int) []reader.Record {
			return append(rs, reader.Record{Partition: rs[i].Partition, Key: []byte("k"), Value: []byte("v")})
		}, "provenance", 1},
		{"outside of the captures", value, func(rs []reader.Record, i int) []reader.Record {
			x := cloneRecords(rs[i : i+1])[0]
			setProvenance(&x, "0:1000000")
			return append(rs, x)
		}, "extra", 1},
		{"padding with a value", padding, func(rs []reader.Record, i int) []reader.Record { rs[i].Value = []byte("v"); return rs }, "provenance", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.replace(t, m.target, 3, asWritten(c.spoil(cloneRecords(good), c.at)))
			v, err := Verify(testcluster.Context(t), m.run, m.env)
			refused(t, err, 5, m.target)
			at := slices.IndexFunc(v.Differences, func(d report.Difference) bool { return d.Kind == c.kind })
			if at < 0 || c.total != anyTotal && (v.Total != c.total || len(v.Differences) != int(c.total)) {
				t.Fatalf("%d differences, want %d of kind %s: %+v", v.Total, c.total, c.kind, v.Differences)
			}
			if d := v.Differences[at]; d.Target == nil || d.Text == "" || d.Key == "" {
				t.Errorf("incomplete: %+v", d)
			}
			content, err := m.env.runDir(m.run.RunDir).read(verifyFileName)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), `"equal": false`) || !strings.Contains(string(content), c.kind) {
				t.Errorf("verify.json: %s", content)
			}
		})
	}
	// A hundred are kept, all are counted.
	spoil := cloneRecords(good)
	for i := range spoil {
		if isMigrated(spoil[i]) {
			spoil[i].Timestamp++
		}
	}
	m.replace(t, m.target, 3, asWritten(spoil))
	v, err := Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 5, "222 differences")
	if v.Total != 222 || len(v.Differences) != 100 {
		t.Errorf("%d differences, %d kept", v.Total, len(v.Differences))
	}
	for i, d := range v.Differences[1:] {
		before := v.Differences[i]
		if cmp.Equal(before, d) || before.Source.Partition > d.Source.Partition || before.Source.Partition == d.Source.Partition && before.Source.Offset > d.Source.Offset {
			t.Errorf("out of order: %+v, then %+v", before, d)
		}
	}
}

// DeleteRecords on a finished target is damage, whatever it took away.
func TestVerifyFindsDeletedRecords(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), nil).planAndApply(t)
	cluster.DeleteRecords(t, m.target, 1, 1) // padding only
	v, err := Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 5)
	if v.Total != 1 || v.Differences[0].Kind != "log-start" || *v.Differences[0].Target != (report.Position{Partition: 1, Offset: 1}) {
		t.Errorf("%+v", v.Differences)
	}
	cluster.DeleteRecords(t, m.target, 1, m.ends(t, m.target)[1])
	v, err = Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 5)
	if v.Total < 10 {
		t.Errorf("a whole partition is gone: %+v", v.Differences)
	}
}

// Settings that hold only while apply runs, and others than planned.
func TestVerifyChecksConfigs(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), func(o *PlanOptions) { o.TargetConfig = map[string]string{"retention.ms": "86400000"} }).planAndApply(t)
	m.verify(t)
	for _, c := range []struct{ name, value, back string }{
		{"segment.ms", forever, ""}, {"min.compaction.lag.ms", forever, ""}, {"retention.ms", "1000000", "86400000"}, {"cleanup.policy", "compact,delete", "compact"},
	} {
		cluster.AlterConfig(t, m.target, map[string]string{c.name: c.value})
		v, err := Verify(testcluster.Context(t), m.run, m.env)
		refused(t, err, 5)
		if v.Total != 1 || v.Differences[0].Kind != "config" || !strings.Contains(v.Differences[0].Text, c.name) {
			t.Errorf("%s: %+v", c.name, v.Differences)
		}
		if c.back == "" {
			cluster.ResetConfig(t, m.target, c.name)
		} else {
			cluster.AlterConfig(t, m.target, map[string]string{c.name: c.back})
		}
	}
	m.verify(t)
}

// cleanableTopic is a topic for the log cleaner: few keys written again and
// again, some deleted for good, some deleted and written again. The first record
// of each partition is of a key of its own, since the embedded broker moves the
// log start to the first record that is left.
func cleanableTopic(t testing.TB, c *testcluster.Cluster) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("partitions 2\nconfig cleanup.policy=compact\n")
	record := func(key string, n int, value string) {
		fmt.Fprintf(&text, "* now \"%s_%d%s\" %s trace=%d\n", key, n, ruleIDs[2:], value, n)
	}
	for n, anchored := 0, map[int32]bool{}; len(anchored) < 2; n++ {
		key := fmt.Sprintf("anchor%d", n)
		if p := seed.Partition([]byte(key+"_0"), 2); !anchored[p] {
			anchored[p] = true
			record(key, 0, "first")
		}
	}
	for n := range 150 {
		if n%10 == 0 {
			text.WriteString("batch\n")
		}
		k := n % 15
		value := fmt.Sprintf("v%d", n)
		if k < 4 && n >= 135 || k > 12 && n < 30 {
			value = "null" // deleted for good, or written again
		}
		record(fmt.Sprintf("user_%d", k), k, value)
		if n%30 == 7 {
			fmt.Fprintf(&text, "* now \"not a key %d\" x\n", n%60)
		}
	}
	return c.Seed(t, "source", text.String())
}

// The log cleaner may run on either side at any moment: what it removes is no
// difference, and it hides none.
func TestCompaction(t *testing.T) {
	cluster := testcluster.Start(t)
	for _, choice := range []struct {
		history rewrite.History
		policy  rewrite.Policy
		to      string
	}{{rewrite.HistoryAll, rewrite.PolicyQuarantine, "escaped"}, {rewrite.HistoryLatest, rewrite.PolicyQuarantine, "length-prefixed"}, {rewrite.HistoryAll, rewrite.PolicyCopy, "escaped"}} {
		t.Run(fmt.Sprintf("%s,%s", choice.history, choice.policy), func(t *testing.T) {
			start := func(t *testing.T) *migration {
				m := migrationOf(t, cluster, cleanableTopic(t, cluster), func(o *PlanOptions) {
					o.History, o.OnUnparseable, o.To = choice.history, choice.policy, choice.to
					if !cluster.Real() {
						o.Align = AlignNone // see cleanableTopic: padding would go first
					}
				})
				m.run.AllowLiveSource = true // compaction is forced by appending
				m.plan(t)
				return m
			}
			judge := func(t *testing.T, m *migration, source []reader.Record, compacted bool) {
				t.Helper()
				p, err := m.env.runDir(m.run.RunDir).readPlan()
				if err != nil {
					t.Fatal(err)
				}
				model := m.model(t)
				model.align, model.compacted = p.Captures[0].AlignTo, compacted
				for _, problem := range model.problems(source, cluster.Read(t, m.target), 2) {
					t.Error("model:", problem)
				}
			}
			// With history latest, only keys that are copied as they are have
			// more than one record on the target.
			all := choice.history == rewrite.HistoryAll || choice.policy == rewrite.PolicyCopy
			t.Run("source before apply", func(t *testing.T) {
				m := start(t)
				before := len(cluster.Read(t, m.source))
				cluster.Compact(t, m.source)
				source := cluster.Read(t, m.source)
				if len(source) >= before {
					t.Fatalf("%d records before compaction, %d after", before, len(source))
				}
				m.apply(t)
				if v := m.verify(t); v.Method != "exact" || v.Superseded != 0 {
					t.Errorf("method %s, %d superseded", v.Method, v.Superseded)
				}
				judge(t, m, source, false)
			})
			t.Run("source after apply", func(t *testing.T) {
				m := start(t)
				source := cluster.Read(t, m.source)
				m.apply(t)
				cluster.Compact(t, m.source)
				v := m.verify(t)
				if want := map[bool]string{true: "compacted", false: "exact"}[all]; v.Method != want || (v.Superseded > 0) != all || all && v.Demanded >= v.Found {
					t.Errorf("method %s, %d superseded, %d demanded, %d found", v.Method, v.Superseded, v.Demanded, v.Found)
				}
				judge(t, m, source, false)
			})
			t.Run("target after apply", func(t *testing.T) {
				m := start(t)
				m.apply(t)
				cluster.Compact(t, m.target)
				v := m.verify(t)
				if all && (v.Method != "compacted" || v.Superseded == 0 || v.Demanded <= v.Found) {
					t.Errorf("method %s, %d superseded, %d demanded, %d found", v.Method, v.Superseded, v.Demanded, v.Found)
				}
				judge(t, m, cluster.Read(t, m.source), true)
			})
			t.Run("both after apply", func(t *testing.T) {
				m := start(t)
				source := cluster.Read(t, m.source)
				m.apply(t)
				cluster.Compact(t, m.target)
				cluster.Compact(t, m.source)
				m.verify(t)
				judge(t, m, source, true)

				// And a record less than compaction leaves is found.
				target := cluster.Read(t, m.target)
				last := slices.IndexFunc(target, func(r reader.Record) bool { return isMigrated(r) && r.Value != nil })
				m.replace(t, m.target, 2, slices.Delete(target, last, last+1))
				_, err := Verify(testcluster.Context(t), m.run, m.env)
				refused(t, err, 5)
			})
			t.Run("source while interrupted", func(t *testing.T) {
				m := start(t)
				m.apply(t)
				good := cluster.Read(t, m.target)
				ends := m.ends(t, m.target)
				source := cluster.Read(t, m.source)
				cluster.Compact(t, m.source)
				m.replace(t, m.target, 2, slices.DeleteFunc(good, func(r reader.Record) bool { return r.Offset >= ends[r.Partition]*3/4 }))
				cluster.AlterConfig(t, m.target, duringCopy)
				if evidence := m.apply(t); !evidence.Resumed || evidence.Written == 0 {
					t.Errorf("resumed %t, written %d", evidence.Resumed, evidence.Written)
				}
				m.verify(t)
				// Superseded records that were not copied before are gone for good.
				model := m.model(t)
				model.align, model.compacted = nil, true
				if problems := model.problems(source, cluster.Read(t, m.target), 2); len(problems) > 0 {
					t.Error("model:", strings.Join(problems, "\n"))
				}
			})
		})
	}
}

// Tombstones that the target's cleaner removed are missed only while it cannot
// have removed them.
func TestCompactionOfTombstones(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker counts the age of a tombstone from its timestamp")
	cluster := testcluster.Start(t)
	m := migrationOf(t, cluster, cleanableTopic(t, cluster), func(o *PlanOptions) {
		o.TargetConfig = map[string]string{"delete.retention.ms": "1"}
	}).planAndApply(t)
	tombstone := func(r reader.Record) bool { return isMigrated(r) && r.Value == nil }
	if !slices.ContainsFunc(cluster.Read(t, m.target), tombstone) {
		t.Fatal("no tombstone was copied")
	}
	cluster.CompactUntil(t, m.target, func(rs []reader.Record) bool { return !slices.ContainsFunc(rs, tombstone) })
	if v := m.verify(t); v.Method != "compacted" || v.Superseded == 0 {
		t.Errorf("method %s, %d superseded", v.Method, v.Superseded)
	}
	cluster.AlterConfig(t, m.target, map[string]string{"delete.retention.ms": "86400000"})
	v, err := Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 5)
	if !slices.ContainsFunc(v.Differences, func(d report.Difference) bool { return d.Kind == "missing" }) {
		t.Errorf("%+v", v.Differences)
	}
}

// A plan of two captures: the second begins where the first ended, with a key
// deleted, one written again and the cleaner at work in between.
func TestVerifyExtendedPlan(t *testing.T) {
	cluster := testcluster.Start(t)
	m := migrationOf(t, cluster, cleanableTopic(t, cluster), nil)
	m.run.AllowLiveSource = true
	m.planAndApply(t)
	first := m.ends(t, m.source)
	source := cluster.Read(t, m.source)
	var more []reader.Record
	for i, r := range source[len(source)-20:] {
		r.Value = [][]byte{nil, []byte("again"), {}}[i%3]
		more = append(more, r)
	}
	m.write(t, m.source, more)
	source = cluster.Read(t, m.source)
	m.options.Extend = true
	m.plan(t)
	m.apply(t)
	if v := m.verify(t); v.Method != "exact" || v.Demanded != v.Found {
		t.Errorf("method %s, %d demanded, %d found", v.Method, v.Demanded, v.Found)
	}
	second := m.ends(t, m.source)
	judge := model{to: "escaped", history: "all", policy: "quarantine", align: first}
	late := func(r reader.Record) bool {
		p, ok := readPosition(provenanceOf(r))
		return ok && p.Offset >= first[p.Partition]
	}
	check := func(rs []reader.Record) []string {
		problems := judge.problems(source, rs, 2)
		for _, r := range rs {
			if late(r) && r.Offset < second[r.Partition] {
				problems = append(problems, fmt.Sprintf("%d:%d lies before offset %d", r.Partition, r.Offset, second[r.Partition]))
			}
		}
		return problems
	}
	good := cluster.Read(t, m.target)
	if problems := check(good); len(problems) > 0 {
		t.Fatal(strings.Join(problems, "\n"))
	}
	if cluster.Real() {
		cluster.Compact(t, m.target)
		cluster.Compact(t, m.source)
		m.verify(t)
		return
	}
	r := rand.New(rand.NewPCG(randomSeed(t), 8))
	spoils := []damage{
		{"a late record first", func(r *rand.Rand, rs []reader.Record) []reader.Record {
			i, j := pick(r, rs, late), pick(r, rs, func(x reader.Record) bool { return isMigrated(x) && !late(x) })
			x := rs[i]
			rs = slices.Delete(rs, i, i+1)
			return slices.Insert(rs, j, x)
		}},
		{"padding between the captures dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
			early := map[int32]bool{}
			n := 1 + r.IntN(12)
			return slices.DeleteFunc(rs, func(x reader.Record) bool {
				early[x.Partition] = early[x.Partition] || isMigrated(x)
				if isMigrated(x) || !early[x.Partition] || n == 0 {
					return false
				}
				n--
				return true
			})
		}},
		{"a late record dropped", func(r *rand.Rand, rs []reader.Record) []reader.Record {
			i := pick(r, rs, late)
			return slices.Delete(rs, i, i+1)
		}},
		{"all late records dropped", func(_ *rand.Rand, rs []reader.Record) []reader.Record { return slices.DeleteFunc(rs, late) }},
	}
	spoiledOnes := 0
	for n := range 40 {
		target := asWritten(spoils[n%len(spoils)].spoil(r, cloneRecords(good)))
		m.replace(t, m.target, 2, target)
		v, err := Verify(testcluster.Context(t), m.run, m.env)
		if problems := check(target); (len(problems) > 0) != (ExitCode(err) == 5) {
			t.Fatalf("%s: %v, %+v; the model says %v", spoils[n%len(spoils)].name, err, v.Differences, problems)
		} else if len(problems) > 0 {
			spoiledOnes++
		}
	}
	if spoiledOnes < 20 {
		t.Errorf("only %d of 40 targets were spoiled", spoiledOnes)
	}
}

// Topics without records: never written, and deleted to the end. Their old
// markers still need room, so the target is padded all the same.
func TestEndToEndWithoutRecords(t *testing.T) {
	cluster := testcluster.Start(t)
	for name, text := range map[string]string{
		"never written":      "partitions 2\n",
		"deleted to the end": "partitions 2\nconfig cleanup.policy=compact,delete\nconfig retention.ms=-1\n0 now \"a" + ruleIDs + "\" x\n0 now \"a" + ruleIDs + "\" y\ndelete-before 0 2\n",
		"only bad keys":      "partitions 2\n0 now \"not a key\" x\n1 now \"\" x\n",
		"only padding's key": "partitions 1\n0 now \"rekey-padding_0_00000000-0000-0000-0000-000000000000_00000000-0000-0000-0000-000000000000\" x\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := migrationOf(t, cluster, cluster.Seed(t, "source", text), nil).planAndApply(t)
			m.verify(t)
			m.check(t)
			if again := m.apply(t); again.Written != 0 {
				t.Errorf("apply after success: %+v", again)
			}
			m.verify(t)
		})
	}
}
