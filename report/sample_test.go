package report

import (
	"strings"
	"time"
	"unicode/utf8"
)

// The three reports that every rendering is tested and looked at with.

var sampleTime = time.Date(2026, 11, 30, 3, 12, 45, 0, time.UTC)

const (
	evt  = "3f2c8a10-5b1e-3d7a-9c44-0a1b2c3d4e5f"
	act  = "9a0c1d2e-3f40-3152-8637-485960718293"
	act2 = "0b9f6c55-12ad-3c8e-a1f0-6d5e4c3b2a19"
)

func topics(n int32, perPartition int64) (src, dst Topic) {
	src = Topic{Name: "flink-agents-state", ID: "Jx8f2bN1QkW0mXo3vE9t7A", ClusterID: "4L6g3nShT-eMCtK--X86sw", Count: n}
	dst = Topic{Name: "flink-agents-state-v2", ClusterID: "4L6g3nShT-eMCtK--X86sw", Count: n,
		Configs: []Config{
			{Name: "cleanup.policy", Value: "compact", Origin: "rekey", Note: "a state topic must keep the last record of each key"},
			{Name: "compression.type", Value: "producer", Origin: "source"},
			{Name: "max.message.bytes", Value: "2097152", Origin: "given"},
			{Name: "message.timestamp.type", Value: "CreateTime", Origin: "rekey", Note: "timestamps are carried over"},
			{Name: "min.insync.replicas", Value: "2", Origin: "source"},
			{Name: "retention.ms", Value: "604800000", Origin: "not carried over", Note: "has no effect without cleanup.policy=delete"},
		}}
	for i := range n {
		src.Partitions = append(src.Partitions, Partition{ID: i, Start: int64(i) * 7, End: int64(i)*7 + perPartition})
	}
	return src, dst
}

func sampleOptions() Options {
	return Options{From: "legacy", To: "escaped", Partitioner: "flink-agents", OnUnparseable: "fail",
		History: "all", Align: "source-end", Compression: "zstd", Isolation: "read_uncommitted"}
}

const rollback = "Keep using flink-agents-state: it was only read. Delete flink-agents-state-v2 if it was created."

// cleanReport is a topic with nothing wrong in it.
func cleanReport() *Report {
	src, dst := topics(4, 2500)
	r := &Report{
		Schema: SchemaVersion, Tool: "rekey 0.1.0",
		PlanID:    "5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592",
		CreatedAt: sampleTime, RunDir: "run",
		Verdict: Verdict{Ready, "All 10,000 records have a key with exactly one meaning."},
		Source:  src, Target: dst, Options: sampleOptions(),
		Counts: Counts{Records: 10000, Bytes: 5_300_000, Rewritten: 9800, Tombstones: 200,
			LargestRecord: 2048, Headers: 10000},
		Times: TimeRange{Oldest: 1795000000000, OldestAt: Position{0, 0},
			Newest: 1796000000123, NewestAt: Position{3, 2520}},
		Codecs:      []NamedCount{{"zstd", 180}},
		Actions:     []NamedCount{{act, 6000}, {act2, 4000}},
		ActionCount: 2,
		Padding:     Padding{Records: 10042, Partitions: 4, EstimateMS: 350},
		Next:        []string{"rekey apply --run-dir run --bootstrap-server kafka-1:9092", "rekey verify --run-dir run --bootstrap-server kafka-1:9092"},
		Rollback:    rollback,
	}
	for i, n := range []int64{2510, 2470, 2533, 2487} {
		r.Spread = append(r.Spread, Load{int32(i), n, n})
	}
	var tl Timeline
	for i := range int64(10000) {
		tl.Add(1795000000000 + i*100000 + (i%97)*12345)
	}
	r.Timeline = tl.Buckets()
	return r
}

func badKey(key []byte, reason, detail string, records int64, first, last Position) BadKey {
	b := NewBadKey(key)
	b.Reason, b.Detail, b.Records, b.First, b.Last, b.Decision = reason, detail, records, first, last, "refuse"
	return b
}

func trait(name, meaning string, records int64, example string, at Position) TraitCount {
	return TraitCount{Trait: name, Meaning: meaning, Records: records, Example: example, At: at}
}

func broken(releases, title string, records int64, cured bool, text string) Break {
	return Break{Releases: releases, Title: title, Records: records, Cured: cured, Text: text}
}

func finding(s Severity, code, title, text, do string) Finding {
	return Finding{Severity: s, Code: code, Title: title, Text: text, Do: do}
}

func difference(kind, key string, source, target *Position, text string) Difference {
	return Difference{Kind: kind, Key: key, Source: source, Target: target, Text: text}
}

func suggest(cause, text, businessKey string, sequence int64) *Suggestion {
	return &Suggestion{Cause: cause, Text: text, BusinessKey: businessKey, Sequence: sequence, EventUUID: evt, ActionUUID: act}
}

// demoReport is the story of the demo: user_* keys on one hot partition, and a
// few keys that nobody can parse.
func demoReport() *Report {
	src, dst := topics(8, 150_000)
	r := &Report{
		Schema: SchemaVersion, Tool: "rekey 0.1.0",
		PlanID:    "9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de",
		CreatedAt: sampleTime, RunDir: "/var/lib/rekey/2026-11-30",
		Verdict: Verdict{Refused, "7 keys (31 records) cannot be parsed, and the policy is to fail."},
		Source:  src, Target: dst, Options: sampleOptions(),
		Counts: Counts{Records: 1_204_331, Bytes: 536_870_912, Rewritten: 1_190_000, Tombstones: 14_300, Undecided: 31,
			Unparseable: 31, UnparseableTombstones: 3, ChangedKeys: 1_098_211, Moved: 960_402, EmptyValues: 12, Headers: 1_204_331,
			LargestRecord: 983_040},
		Times: TimeRange{Oldest: 1764575622123, OldestAt: Position{5, 35},
			Newest: 1796007165000, NewestAt: Position{2, 150_013}, Unset: 4},
		Codecs:      []NamedCount{{"lz4", 24_018}, {"none", 311}},
		Actions:     []NamedCount{{act, 804_331}, {act2, 400_000}},
		ActionCount: 2,
		Padding:     Padding{Records: 1_200_196, Partitions: 8, EstimateMS: 41_000},
		Next: []string{
			"rekey repair --run-dir /var/lib/rekey/2026-11-30 --accept bad-action-uuid",
			"rekey plan --bootstrap-server kafka-1:9092 --source flink-agents-state --target flink-agents-state-v2 --run-dir /var/lib/rekey/2026-11-30-b --repairs /var/lib/rekey/2026-11-30/repairs.jsonl",
		},
		Rollback: rollback,
		BadKeys:  7,
	}
	for i, n := range []int64{14_120, 15_311, 13_908, 14_770, 15_002, 1_101_930, 14_690, 14_600} {
		r.Spread = append(r.Spread, Load{int32(i), n, 150_541 + int64(i%3)*900 - int64(i)*37})
	}
	id := "_" + evt + "_" + act
	r.Examples = []BadKey{
		badKey(nil, "null-key", "there is no key", 3, Position{0, 14}, Position{4, 90_121}),
		badKey([]byte{}, "empty-key", "the key has no bytes", 1, Position{1, 2007}, Position{1, 2007}),
		badKey([]byte("order_17_4"+id+"\n"), "bad-action-uuid", "action UUID: byte 36 is a line feed, expected the end of the key", 12, Position{5, 44_102}, Position{5, 71_990}),
		badKey([]byte(`"user_9_1`+id+`"`), "bad-action-uuid", "action UUID: byte 36 is a quote, expected the end of the key", 6, Position{5, 51}, Position{5, 60}),
		badKey([]byte("tenant-4711-"+evt+"-"+act), "dashed", "has the form of releases before 0.1.0", 5, Position{2, 9}, Position{2, 13}),
		badKey([]byte("caf\xe9_3"+id), "invalid-utf8", "byte 3 is 0xE9, not UTF-8", 3, Position{3, 77}, Position{3, 4_020}),
		badKey([]byte("heartbeat"), "foreign", "no field of a state key was found", 1, Position{6, 120_000}, Position{6, 120_000}),
	}
	r.Examples[0].Tombstones = 3
	r.Examples[2].Suggestion = suggest("surrounding-whitespace", "remove the white space at the end", "order_17", 4)
	r.Examples[3].Suggestion = suggest("json-quoted", "take the key out of its JSON string", "user_9", 1)
	for _, c := range []ReasonCount{{"bad-action-uuid", "", 2, 18}, {"dashed", "", 1, 5}, {"invalid-utf8", "", 1, 3}, {"null-key", "", 1, 3}, {"empty-key", "", 1, 1}, {"foreign", "", 1, 1}} {
		c.Meaning = Meaning(c.Reason)
		r.Unparseable = append(r.Unparseable, c)
	}
	r.Traits = []TraitCount{
		trait("unstable-identity", "The business key is the address of a Java object; another run has another one.", 210, Printable([]byte("[B@1a2b3c_0"+id)), Position{5, 99}),
		trait("numeric", "The business key is a number; whether it was a String, a Long or an Integer cannot be seen.", 81_204, Printable([]byte("4711_0"+id)), Position{1, 3}),
	}
	r.Breaks = []Break{
		broken("0.1-0.3", `Keys with "_" are never pruned`, 1_098_211, true, `The reader splits at "_", wants four parts and finds more. The new keys have exactly four.`),
		broken("0.1-0.3", `All keys with the same start share one partition`, 1_101_930, true, `The partitioner hashes what stands before the first "_": "user" for every user_* key.`),
		broken("0.1-0.3", "A key that cannot be parsed makes lookups fail", 31, false, "Repair or quarantine these keys."),
	}
	r.Findings = []Finding{
		finding(Refusal, "unparseable-keys", "7 keys cannot be parsed", "They hold 31 of 1,204,331 records.", "Review unparseable.jsonl, accept the repairs that are right, and plan again; or plan with --on-unparseable quarantine."),
		finding(Warning, "unstable-identity", "210 records have keys that no other run can produce", "They are copied byte for byte. The job will not find them again.", "Nothing, unless the job should have found them: then its key selector has to change."),
		finding(Note, "padding", "1,200,196 padding records take about 41 s", "", ""),
	}
	var tl Timeline
	tl.Add(1764575622123)
	for i := range int64(20_000) {
		tl.Add(1793400000000 + i*130_000 + (i*i%9973)*31_000)
	}
	r.Timeline = tl.Buckets()
	return r
}

// hostileKeys try to be markup, to hide, to reorder and to break out.
func hostileKeys() [][]byte {
	return [][]byte{
		[]byte(`<script>alert(1)</script>`),
		[]byte(`"><img src=x onerror=alert(1)>`),
		[]byte("</code></td></tr></table><h1>READY</h1>"),
		[]byte("user\u202Egnp.exe_1"),
		[]byte("a\u200Bb\uFEFFc\u2060d"),
		[]byte("\x1b[2J\x1b]0;owned\a\x1b[31mREADY"),
		[]byte("line1\nVERDICT: READY\r\n\tx"),
		[]byte("\x00\x01\x7f\u0085\u009b31m"),
		[]byte("\xff\xfe\xc3(\xed\xa0\x80"),
		[]byte("e\u0301te\u0301 and \u00e9t\u00e9"),
		[]byte("\u0301starts with a mark"),
		[]byte("Z\u0351\u036b\u0343a\u033f\u034a"),
		[]byte("\u05d0\u05d1\u05d2_1_2"),
		[]byte("user_\u0661\u0662"),
		[]byte("\u3164\u115f\u2800\u00ad"),
		[]byte("\ue000\ufffe\U0010ffff\ufffd"),
		[]byte("null"),
		[]byte(`"quoted" \back\ {{.Verdict}} ${x} <!-- --> ]]> %3Cb%3E`),
		[]byte("javascript:alert(1)//';alert(2)//\u2028\u2029"),
		[]byte("注文_東京_顧客番号_二千二十六_전각_ﾊﾝｶｸ_🙂🙂🙂🙂🙂🙂🙂🙂"),
		[]byte("ลูกค้า_ग्राहक_клиент_πελάτης"),
		[]byte("👩‍👩‍👧‍👦 🇩🇪 👍🏽"),
		[]byte("two  spaces and one at the end "),
		[]byte("a…12 bytes…b"),
		[]byte(strings.Repeat("long_", 900)),
		[]byte(strings.Repeat("<b>", 40)),
	}
}

// hostileReport has strangers' text wherever strangers can put it.
func hostileReport() *Report {
	src, dst := topics(3, 40)
	evil := "</style><script>alert(1)</script><b onclick=alert(1)>\u202E\x1b[31m x"
	src.Name = evil
	r := &Report{
		Schema: SchemaVersion, Tool: "rekey 0.1.0", PlanID: evil, CreatedAt: sampleTime, RunDir: "/srv/runs/" + evil,
		Verdict: Verdict{Review, "26 keys are not copied. " + evil},
		Source:  src, Target: dst, Options: sampleOptions(),
		Counts: Counts{Records: 120, Bytes: 99_999, Rewritten: 90, Tombstones: 1, Quarantined: 26, Omitted: 3,
			Unparseable: 26, ChangedKeys: 4, Misplaced: 2, LargestRecord: 4500},
		Times:  TimeRange{Oldest: -1 << 63, OldestAt: Position{2, 3}, Newest: 1<<63 - 1, NewestAt: Position{1, 9}, Unset: 1},
		Codecs: []NamedCount{{evil, 1}}, Actions: []NamedCount{{evil, 91}}, ActionCount: 44,
		Spread:   []Load{{0, 100, 40}, {1, 20, 41}, {2, 0, 10}},
		Traits:   []TraitCount{trait("unstable-identity", evil, 1, Printable([]byte(evil)), Position{1, 1})},
		Breaks:   []Break{broken("0.1-0.3", evil, 4, true, evil)},
		Findings: []Finding{finding(Warning, "unparseable-keys", evil, evil, evil)},
		Next:     []string{"rekey apply --run-dir '/srv/runs/a  b' # " + evil},
		Rollback: evil,
	}
	r.Target.Configs = append(r.Target.Configs, Config{evil, evil, evil, evil})
	r.Options.OnUnparseable = "quarantine"
	for i, k := range hostileKeys() {
		reason := reasons[(i+3)%len(reasons)].code
		b := badKey(k, reason, "found "+Printable(k[:min(len(k), 12)]), 1, Position{0, int64(i)}, Position{0, int64(i)})
		b.Decision = "quarantine"
		if i%2 == 0 && utf8.Valid(k) {
			b.Suggestion = suggest("surrounding-whitespace", "rewrite "+strings.ToValidUTF8(string(k[:min(len(k), 30)]), ""), string(k), 7)
		}
		r.Examples = append(r.Examples, b)
	}
	r.BadKeys = int64(len(r.Examples))
	r.Unparseable = []ReasonCount{{"foreign", "", 20, 20}, {evil, "", 6, 6}}
	var tl Timeline
	for _, ms := range []int64{-1 << 63, -1, 0, 1, 1795000000000, 1<<63 - 1} {
		tl.Add(ms)
	}
	r.Timeline = tl.Buckets()
	return r
}

func sampleReports() map[string]*Report {
	return map[string]*Report{"clean": cleanReport(), "demo": demoReport(), "hostile": hostileReport()}
}

func sampleApply() *Apply {
	src, dst := topics(8, 150_000)
	dst.ID = "0aY1nD5cT2m8yQ3r4s5t6g"
	return &Apply{Schema: SchemaVersion, Tool: "rekey 0.1.0", PlanID: demoReport().PlanID, Source: src, Target: dst,
		StartedAt: sampleTime, FinishedAt: sampleTime.Add(83*time.Second + 400*time.Millisecond),
		Resumed: true, Present: 400_000, Written: 804_300, Padded: 1_200_196, Bytes: 361_758_720, Skipped: 31,
		Findings: []Finding{finding(Note, "resumed", "An earlier run was interrupted; this one carried on", "", "")},
		Next:     []string{"rekey verify --run-dir /var/lib/rekey/2026-11-30-b --bootstrap-server kafka-1:9092"},
		Rollback: rollback}
}

func sampleVerify() *Verify {
	a := sampleApply()
	return &Verify{Schema: SchemaVersion, Tool: "rekey 0.1.0", PlanID: a.PlanID, Source: a.Source, Target: a.Target,
		StartedAt: sampleTime, FinishedAt: sampleTime.Add(45 * time.Second), Equal: true, Method: "exact",
		Demanded: 1_204_300, Found: 1_204_300, Padding: 1_200_196,
		Next:     []string{"rekey rehearse --run-dir /var/lib/rekey/2026-11-30-b --runtime 0.3 --marker marker.json"},
		Rollback: rollback}
}

func differentVerify() *Verify {
	v := sampleVerify()
	v.Equal, v.Found, v.Total = false, 1_204_299, 214
	key := Printable([]byte("order%5F17_4_" + evt + "_" + act))
	v.Differences = []Difference{
		difference("missing", key, &Position{5, 44_102}, nil, "the record is not on the new topic"),
		difference("value", key, &Position{5, 44_103}, &Position{2, 150_201}, "512 bytes on the old topic, 0 on the new one"),
		difference("extra", Printable([]byte("<b>\u202Ex")), nil, &Position{1, 9}, "no record of the old topic belongs here"),
	}
	for i := range 97 {
		v.Differences = append(v.Differences, difference("timestamp", key, &Position{1, int64(i)}, &Position{1, int64(i) + 150_000}, "1764575622123 became 1796007165000"))
	}
	return v
}
