package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/report"
	"rekey/rewrite"
)

// tinyTopic is for tests that migrate many times.
func tinyTopic() seed.Options {
	return seed.Options{Seed: 5, Partitions: 2, Records: 40, Keys: 5, Tombstones: 4, Unparseable: 4, Headers: 3}
}

// phases are those that go by a plan.
var phases = []struct {
	name string
	run  func(testing.TB, *migration) error
}{
	{"apply", func(t testing.TB, m *migration) error {
		_, err := Apply(testcluster.Context(t), m.run, m.env)
		return err
	}},
	{"verify", func(t testing.TB, m *migration) error {
		_, err := Verify(testcluster.Context(t), m.run, m.env)
		return err
	}},
}

// refuse demands that both phases refuse, with exit code 4 and the words, and
// leave the target as it is.
func (m *migration) refuse(t testing.TB, texts ...string) {
	t.Helper()
	before := m.targetEnds(t)
	for _, phase := range phases {
		err := phase.run(t, m)
		if err == nil {
			t.Errorf("%s accepts it", phase.name)
			continue
		}
		if ExitCode(err) != 4 || !errors.Is(err, ErrChanged) {
			t.Errorf("%s: exit code %d, want 4: %v", phase.name, ExitCode(err), err)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", phase.name, err, text)
			}
		}
		if Advice(err) == "" {
			t.Errorf("%s gives no advice with %q", phase.name, err)
		}
	}
	if after := m.targetEnds(t); after != before {
		t.Errorf("the target was %s, it is %s", before, after)
	}
}

// targetEnds are the target's next offsets, or that it does not exist.
func (m *migration) targetEnds(t testing.TB) string {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &m.target
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(testcluster.Context(t), m.client)
	if err != nil {
		t.Fatal(err)
	}
	if errors.Is(kerr.ErrorForCode(resp.Topics[0].ErrorCode), kerr.UnknownTopicOrPartition) {
		return "no topic"
	}
	return fmt.Sprint(resp.Topics[0].TopicID, m.ends(t, m.target))
}

// leaves lists the paths of all values in a JSON document, objects and arrays
// included.
func leaves(path []any, value any) [][]any {
	out := [][]any{path}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			out = append(out, leaves(append(slices.Clone(path), name), child)...)
		}
	case []any:
		for i, child := range value {
			out = append(out, leaves(append(slices.Clone(path), i), child)...)
		}
	}
	return out
}

// edited gives every plausible edit of one value.
func editsOf(value any) []any {
	switch value := value.(type) {
	case string:
		return []any{value + "x", "", nil, strings.ToUpper(value), 1}
	case json.Number:
		n, err := value.Int64()
		if err != nil {
			return []any{0}
		}
		return []any{n + 1, n - 1, -n - 1, nil, fmt.Sprint(n)}
	case bool:
		return []any{!value, nil}
	case []any:
		out := []any{nil, append(slices.Clone(value), value...), map[string]any{}}
		if len(value) > 0 {
			out = append(out, value[1:], []any{})
		}
		if len(value) > 1 {
			reversed := slices.Clone(value)
			slices.Reverse(reversed)
			out = append(out, reversed)
		}
		return out
	case map[string]any:
		out := []any{nil, map[string]any{}}
		for name := range value {
			less := map[string]any{}
			for n, v := range value {
				if n != name {
					less[n] = v
				}
			}
			out = append(out, less)
		}
		return out
	}
	return []any{0, "x"}
}

// with is the document with another value at a path.
func with(document any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0].(type) {
	case string:
		out := map[string]any{}
		for n, v := range document.(map[string]any) {
			out[n] = v
		}
		out[step] = with(out[step], path[1:], value)
		return out
	default:
		out := slices.Clone(document.([]any))
		out[step.(int)] = with(out[step.(int)], path[1:], value)
		return out
	}
}

func at(document any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			document = document.(map[string]any)[step]
		case int:
			document = document.([]any)[step]
		}
	}
	return document
}

// Every field of plan.json, edited in every plausible way, is refused before
// any connection is made. White space and the order of fields are free.
func TestPlanEditedByHand(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), func(o *PlanOptions) { o.TargetConfig = map[string]string{"segment.bytes": "104857600"} })
	m.planAndApply(t)
	dir := m.env.runDir(m.run.RunDir)
	path := dir.path(planFileName)
	original, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	planned, err := dir.readPlan()
	if err != nil {
		t.Fatal(err)
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(original))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	defer write(original)

	paths := leaves(nil, document)
	tried := 0
	for _, p := range paths {
		if len(p) == 0 {
			continue
		}
		value := at(document, p)
		for _, edit := range editsOf(value) {
			content, err := json.Marshal(with(document, p, edit))
			if err != nil {
				t.Fatal(err)
			}
			if same, err := json.Marshal(document); err != nil || bytes.Equal(same, content) {
				continue // upper case of a number, and the like
			}
			write(content)
			tried++
			if got, err := dir.readPlan(); err == nil {
				if cmp.Equal(got, planned, cmp.AllowUnexported(plan{})) {
					continue // a zero that is left out is still a zero
				}
				t.Errorf("%v: %v instead of %v is accepted: %+v", p, edit, value, got)
			} else if ExitCode(err) != 4 || !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "schema version") {
				t.Errorf("%v: %v instead of %v: exit code %d: %v", p, edit, value, ExitCode(err), err)
			}
		}
	}
	if tried < 200 {
		t.Errorf("only %d edits were tried", tried)
	}
	t.Logf("%d edits of %d values", tried, len(paths))

	compact := new(bytes.Buffer)
	if err := json.Compact(compact, original); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.MarshalIndent(document, "\t", "    ") // fields by name
	if err != nil {
		t.Fatal(err)
	}
	windows := bytes.ReplaceAll(original, []byte("\n"), []byte("\r\n"))
	for i, content := range [][]byte{compact.Bytes(), sorted, windows, append([]byte("\n\n "), original...), append(slices.Clone(original), " \n\t"...)} {
		write(content)
		if _, err := dir.readPlan(); err != nil {
			t.Errorf("only white space or the order of fields changed (%d), and it is refused: %v", i, err)
		}
	}

	text := string(original)
	for name, content := range map[string]string{
		"empty file":                    "",
		"white space":                   "\n",
		"null":                          "null",
		"not JSON":                      "plan",
		"an array":                      "[" + text + "]",
		"something follows":             text + "{}",
		"a comma follows":               text + ",",
		"a comment":                     "// edited\n" + text,
		"byte order mark":               "\ufeff" + text,
		"unknown field":                 strings.Replace(text, "{", `{"skip": true,`, 1),
		"unknown nested field":          strings.Replace(text, `"source": {`, `"source": {"skip": true,`, 1),
		"duplicate field, other value":  strings.Replace(text, "{", `{"align": "none",`, 1),
		"duplicate field, same value":   strings.Replace(text, "{", `{"align": "source-end",`, 1),
		"duplicate nested field":        strings.Replace(text, `"source": {`, `"source": {"topic": "other",`, 1),
		"duplicate in a capture":        strings.Replace(text, `"captures": [`+"\n    {", `"captures": [`+"\n    {"+`"records": 0,`, 1),
		"duplicate in another spelling": strings.Replace(text, "{", `{"\u0061lign": "none",`, 1),
	} {
		if content == text {
			t.Fatalf("%s: nothing to replace", name)
		}
		write([]byte(content))
		if _, err := dir.readPlan(); ExitCode(err) != 4 {
			t.Errorf("%s: exit code %d: %v", name, ExitCode(err), err)
		}
	}
	for n := 0; n < len(bytes.TrimSpace(original)); n += 7 {
		write(original[:n])
		if _, err := dir.readPlan(); ExitCode(err) != 4 {
			t.Fatalf("cut after %d bytes: exit code %d: %v", n, ExitCode(err), err)
		}
	}
	r := rand.New(rand.NewPCG(randomSeed(t), 5))
	for range 500 {
		content := slices.Clone(original)
		i := r.IntN(len(content))
		content[i] ^= 1 << r.IntN(8)
		write(content)
		got, err := dir.readPlan()
		if err == nil { // one white space for another, or a field's name in another case
			if !cmp.Equal(got, planned, cmp.AllowUnexported(plan{})) {
				t.Errorf("byte %d, %q instead of %q, is accepted", i, content[i], original[i])
			}
		} else if ExitCode(err) != 4 {
			t.Errorf("byte %d: exit code %d: %v", i, ExitCode(err), err)
		}
	}

	// The phases themselves read the plan so, before anything else.
	write([]byte(strings.Replace(text, `"source-end"`, `"none"`, 1)))
	m.refuse(t, path, "not as rekey plan wrote it")
}

// A run directory that cannot be read or holds no plan, and one that holds
// another plan.
func TestRunDirectories(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), nil)
	m.plan(t)
	if _, err := Plan(testcluster.Context(t), m.options, m.env); ExitCode(err) != 2 || !strings.Contains(err.Error(), "already holds a plan") {
		t.Errorf("a second plan in the run directory: exit code %d: %v", ExitCode(err), err)
	}
	planned, err := m.env.runDir(m.run.RunDir).readPlan()
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, planFileName), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "empty": t.TempDir(), "a file": file, "plan.json is a folder": folder, "": ""} {
		other := *m
		other.run.RunDir = dir
		for _, phase := range phases {
			if err := phase.run(t, &other); ExitCode(err) != 2 || !errors.Is(err, ErrUsage) {
				t.Errorf("%s, run directory %s: exit code %d: %v", phase.name, name, ExitCode(err), err)
			}
		}
	}
	for name, dir := range map[string]string{"a file": file, "below a file": filepath.Join(file, "run")} {
		o := m.options
		o.RunDir = dir
		if _, err := Plan(testcluster.Context(t), o, m.env); ExitCode(err) != 2 {
			t.Errorf("plan, run directory %s: exit code %d: %v", name, ExitCode(err), err)
		}
	}
	if again, err := m.env.runDir(m.run.RunDir).readPlan(); err != nil || again.ID != planned.ID {
		t.Errorf("the plan changed: %v", err)
	}
	m.apply(t)
	m.verify(t)
}

// The files that the plan was reviewed by are sealed with it.
func TestSealedFilesChanged(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), nil)
	m.planAndApply(t)
	dir := m.env.runDir(m.run.RunDir)
	p, err := dir.readPlan()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range p.Files {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{quarantineFileName, unparseableFileName}) {
		t.Fatalf("sealed are %v", names)
	}
	for _, name := range names {
		original, err := os.ReadFile(dir.path(name))
		if err != nil {
			t.Fatal(err)
		}
		for what, content := range map[string][]byte{
			"a byte": append([]byte{original[0] ^ 1}, original[1:]...), "white space": append(slices.Clone(original), '\n'),
			"cut": original[:len(original)-1], "empty": {}, "removed": nil,
		} {
			if content == nil {
				err = os.Remove(dir.path(name))
			} else {
				err = os.WriteFile(dir.path(name), content, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Run(name+"/"+what, func(t *testing.T) { m.refuse(t, dir.path(name)) })
		}
		if err := os.WriteFile(dir.path(name), original, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m.verify(t)
}

// Each way in which the world can be another one than the plan saw, before the
// first apply and after the last: refused by both phases, target untouched.
func TestWorldChanged(t *testing.T) {
	otherCluster := func(t *testing.T, m *migration) {
		testcluster.RequireFake(t, "a second cluster, with the same topics")
		other := testcluster.StartWith(t, testcluster.Options{Fake: []kfake.Opt{kfake.ClusterID("another-cluster")}})
		ctx := testcluster.Context(t)
		for _, topic := range []string{m.source, m.target} {
			if err := seed.CreateTopic(ctx, other.Client(t), topic, 2, -1, nil); err != nil {
				t.Fatal(err)
			}
		}
		twin := *m
		twin.cluster, twin.client = other, other.Client(t)
		twin.write(t, m.source, m.cluster.Read(t, m.source))
		m.run.Connections.Source.Bootstrap = other.Addrs()
		m.cluster, m.client = twin.cluster, twin.client
	}
	addPartitions := func(topic func(*migration) string) func(*testing.T, *migration) {
		return func(t *testing.T, m *migration) {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis = 30_000
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = topic(m), 3
			req.Topics = append(req.Topics, rt)
			resp, err := req.RequestWith(testcluster.Context(t), m.client)
			if err == nil {
				err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
			}
			if err != nil {
				t.Fatal(err)
			}
			m.ends(t, topic(m)) // waits for the new one's leader
		}
	}
	source := func(m *migration) string { return m.source }
	target := func(m *migration) string { return m.target }
	reseal := func(change func(*plan)) func(*testing.T, *migration) {
		return func(t *testing.T, m *migration) {
			dir := m.env.runDir(m.run.RunDir)
			p, err := dir.readPlan()
			if err != nil {
				t.Fatal(err)
			}
			change(p)
			if err := dir.writePlan(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		exists  bool // the target, empty, before the plan
		applied bool // only after an apply
		before  bool // only before the first apply
		change  func(*testing.T, *migration)
		texts   []string
	}{
		{name: "another cluster", change: otherCluster, texts: []string{"another cluster", "another-cluster"}},
		{name: "source re-created", change: func(t *testing.T, m *migration) {
			records, evidence := m.cluster.Read(t, m.source), m.env.runDir(m.run.RunDir).path(applyFileName)
			kept, err := os.ReadFile(evidence)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			m.replace(t, m.source, 2, records)
			if kept != nil {
				if err := os.WriteFile(evidence, kept, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}, texts: []string{"source topic", "re-created"}},
		{name: "source gone", change: func(t *testing.T, m *migration) { m.deleteTopic(t, m.source) }, texts: []string{"source topic", "gone"}},
		{name: "source with more partitions", change: addPartitions(source), texts: []string{"source topic", "has 3 partitions, it had 2"}},
		{name: "source's log start moved", change: func(t *testing.T, m *migration) { m.cluster.DeleteRecords(t, m.source, 1, 3) },
			texts: []string{"log start", "partition 1 went to 3", "offsets 0 to 2 are needed"}},
		{name: "source deleted to its end", change: func(t *testing.T, m *migration) { m.cluster.DeleteRecords(t, m.source, 0, -1) },
			texts: []string{"log start", "partition 0"}},
		{name: "source shorter than captured", change: reseal(func(p *plan) { p.Captures[0].Ends[1] += 1000 }), texts: []string{"partition 1 ends at", "it ended at"}},
		{name: "target with more partitions", applied: true, change: addPartitions(target), texts: []string{"target topic", "has 3 partitions, the plan is for 2"}},
		{name: "empty target with more partitions", exists: true, change: addPartitions(target), texts: []string{"target topic", "has 3 partitions, the plan is for 2"}},
		{name: "target re-created", applied: true, change: func(t *testing.T, m *migration) {
			dir := m.env.runDir(m.run.RunDir)
			kept, err := os.ReadFile(dir.path(applyFileName))
			if err != nil {
				t.Fatal(err)
			}
			m.replace(t, m.target, 2, m.cluster.Read(t, m.target))
			if err := os.WriteFile(dir.path(applyFileName), kept, 0o644); err != nil {
				t.Fatal(err)
			}
		}, texts: []string{"target topic", "re-created", "apply wrote to"}},
		{name: "empty target re-created", exists: true, before: true, change: func(t *testing.T, m *migration) { m.replace(t, m.target, 2, nil) },
			texts: []string{"target topic", "re-created"}},
		{name: "empty target gone", exists: true, before: true, change: func(t *testing.T, m *migration) { m.deleteTopic(t, m.target) }, texts: []string{"target topic"}},
		{name: "target gone", applied: true, change: func(t *testing.T, m *migration) { m.deleteTopic(t, m.target) }, texts: []string{"target topic"}},
	} {
		for _, applied := range []bool{false, true} {
			if c.applied && !applied || c.before && applied {
				continue
			}
			t.Run(fmt.Sprintf("%s/applied=%t", c.name, applied), func(t *testing.T) {
				cluster := testcluster.Start(t)
				m := newMigration(t, cluster, tinyTopic(), nil)
				if c.exists {
					if err := seed.CreateTopic(testcluster.Context(t), m.client, m.target, 2, -1, copyConfigs([]report.Config{{Name: "cleanup.policy", Value: "compact"}})); err != nil {
						t.Fatal(err)
					}
				}
				m.plan(t)
				if applied {
					m.apply(t)
				}
				c.change(t, m)
				m.refuse(t, c.texts...)
			})
		}
	}
}

// While the job still writes, apply and verify do their work and then say so.
func TestSourceStillWritten(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), nil)
	m.plan(t)
	m.write(t, m.source, cluster.Read(t, m.source)[:3])
	for _, phase := range phases {
		refused(t, phase.run(t, m), 4, "still written to: 3 offsets")
	}
	m.run.AllowLiveSource = true
	m.apply(t)
	m.verify(t)
	captured := slices.DeleteFunc(cluster.Read(t, m.source), func(r reader.Record) bool {
		p, err := m.env.runDir(m.run.RunDir).readPlan()
		return err != nil || r.Offset >= p.ends()[r.Partition]
	})
	if problems := (model{to: "escaped", history: "all", policy: "quarantine"}).problems(captured, cluster.Read(t, m.target), 2); len(problems) > 0 {
		t.Error(strings.Join(problems, "\n"))
	}
}

// plan and verify only read: seen from the broker, whatever they come across.
func TestPlanAndVerifyOnlyRead(t *testing.T) {
	testcluster.RequireFake(t, "requests are observed in the broker")
	reading := map[int16]bool{}
	for _, key := range []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.ListOffsets, kmsg.Fetch, kmsg.DescribeConfigs,
		kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.DescribeTopicPartitions, kmsg.OffsetForLeaderEpoch} {
		reading[key.Int16()] = true
	}
	reading[kmsg.GetTelemetrySubscriptions.Int16()] = true // this test's own client sends it
	cluster := testcluster.Start(t)
	var mu sync.Mutex
	seen := map[int16]int{}
	var creates []string
	cluster.Fake().Cluster().Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake().Cluster().KeepControl()
		mu.Lock()
		defer mu.Unlock()
		seen[r.Key()]++
		if m, ok := r.(*kmsg.MetadataRequest); ok && m.AllowAutoTopicCreation && len(m.Topics) > 0 {
			creates = append(creates, fmt.Sprint(*m.Topics[0].Topic))
		}
		return nil, nil, false
	})
	observe := func(what string, f func()) {
		t.Helper()
		mu.Lock()
		clear(seen)
		creates = nil
		mu.Unlock()
		f()
		mu.Lock()
		defer mu.Unlock()
		for key, n := range seen {
			if !reading[key] {
				t.Errorf("%s sends %d %s requests", what, n, kmsg.NameForKey(key))
			}
		}
		if len(creates) > 0 {
			t.Errorf("%s asks for metadata in a way that may create %v", what, creates)
		}
		if seen[kmsg.Metadata.Int16()] == 0 {
			t.Errorf("%s: nothing was observed: %v", what, seen)
		}
	}
	m := newMigration(t, cluster, tinyTopic(), nil)
	observe("plan", func() { m.plan(t) })
	if seen[kmsg.Fetch.Int16()] == 0 {
		t.Errorf("plan fetches nothing: %v", seen)
	}
	observe("a plan that refuses", func() {
		o := m.options
		o.RunDir, o.OnUnparseable = filepath.Join(t.TempDir(), "run"), rewrite.PolicyFail
		if _, err := Plan(testcluster.Context(t), o, m.env); ExitCode(err) != 3 {
			t.Errorf("exit code %d: %v", ExitCode(err), err)
		}
	})
	observe("a plan for a source that is not there", func() {
		o := m.options
		o.RunDir, o.Source = filepath.Join(t.TempDir(), "run"), "not-there"
		if _, err := Plan(testcluster.Context(t), o, m.env); ExitCode(err) != 2 {
			t.Errorf("exit code %d: %v", ExitCode(err), err)
		}
	})
	observe("verify without a target", func() {
		if _, err := Verify(testcluster.Context(t), m.run, m.env); ExitCode(err) != 4 {
			t.Errorf("exit code %d: %v", ExitCode(err), err)
		}
	})
	m.apply(t)
	if seen[kmsg.Produce.Int16()] == 0 || seen[kmsg.CreateTopics.Int16()] == 0 || seen[kmsg.InitProducerID.Int16()] == 0 {
		t.Errorf("apply was not observed: %v", seen)
	}
	observe("verify", func() { m.verify(t) })
	all := cluster.Read(t, m.source)
	m.write(t, m.source, all[len(all)-2:])
	observe("a plan to extend", func() {
		o := m.options
		o.Extend = true
		if _, err := Plan(testcluster.Context(t), o, m.env); err != nil {
			t.Error(err)
		}
	})
	observe("verify with differences", func() {
		if _, err := Verify(testcluster.Context(t), m.run, m.env); ExitCode(err) != 5 {
			t.Errorf("exit code %d: %v", ExitCode(err), err)
		}
	})
}

// Whatever prefix of the copy an interrupted apply left, the same command goes
// on from there: every length of every partition is tried.
func TestResumeFromEveryPrefix(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Start(t)
	for _, history := range []rewrite.History{rewrite.HistoryAll, rewrite.HistoryLatest} {
		t.Run(string(history), func(t *testing.T) {
			topic := tinyTopic()
			topic.Keys = 12
			m := newMigration(t, cluster, topic, func(o *PlanOptions) { o.History = history }).planAndApply(t)
			good := cluster.Read(t, m.target)
			ends := m.ends(t, m.target)
			step := int64(1)
			if history == rewrite.HistoryLatest {
				step = 4
			}
			if cluster.Real() {
				step = 17
			}
			r := rand.New(rand.NewPCG(randomSeed(t), 6))
			var every [][]int64 // the partitions of a copy are written independently
			for cut := int64(0); cut <= ends[0]; cut += step {
				every = append(every, []int64{cut, r.Int64N(ends[1] + 1)})
			}
			for cut := int64(0); cut <= ends[1]; cut += step {
				every = append(every, []int64{r.Int64N(ends[0] + 1), cut})
			}
			for _, cuts := range every {
				left := slices.DeleteFunc(slices.Clone(good), func(x reader.Record) bool { return x.Offset >= cuts[x.Partition] })
				m.replace(t, m.target, 2, left)
				cluster.AlterConfig(t, m.target, duringCopy) // as an interrupted apply leaves it
				evidence := m.apply(t)
				migrated := int64(0)
				for _, x := range left {
					if isMigrated(x) {
						migrated++
					}
				}
				if evidence.Present != migrated || evidence.Resumed != (migrated > 0 && !evidence.Nothing) {
					t.Errorf("cut at %v: present %d of %d, resumed %t, nothing %t", cuts, evidence.Present, migrated, evidence.Resumed, evidence.Nothing)
				}
				m.check(t)
				m.verify(t)
				if t.Failed() {
					t.Fatalf("cut at %v", cuts)
				}
			}
		})
	}
}

// What is on the target must be an exact prefix. Anything else is refused with
// the first offence, and no record is added.
func TestResumeRefusesWhatIsNoPrefix(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "a topic is deleted and written anew for each of many damages")
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), nil).planAndApply(t)
	model, source, good := m.model(t), cluster.Read(t, m.source), cluster.Read(t, m.target)
	r := rand.New(rand.NewPCG(randomSeed(t), 7))
	refusals := 0
	for n := range 3 * len(damages) {
		d := damages[n%len(damages)]
		// Cut every partition somewhere, then spoil what is left.
		cuts := map[int32]int64{}
		for partition, end := range m.ends(t, m.source) {
			cuts[int32(partition)] = end + r.Int64N(40)
		}
		left := asWritten(slices.DeleteFunc(cloneRecords(good), func(x reader.Record) bool { return x.Offset >= cuts[x.Partition] }))
		if !slices.ContainsFunc(left, isMigrated) || !slices.ContainsFunc(left, func(x reader.Record) bool { return isMigrated(x) && x.Value == nil }) {
			continue
		}
		spoiled := d.spoil(r, cloneRecords(left))
		if spoiled == nil {
			continue
		}
		spoiled = asWritten(spoiled)
		if model.prefix(source, spoiled) {
			continue
		}
		m.replace(t, m.target, 3, spoiled)
		cluster.AlterConfig(t, m.target, duringCopy)
		before := migratedIn(cluster.Read(t, m.target))
		_, err := Apply(testcluster.Context(t), m.run, m.env)
		if ExitCode(err) != 6 {
			t.Fatalf("%s: exit code %d: %v", d.name, ExitCode(err), err)
		}
		for _, text := range []string{m.target, "what this plan did not write", "partition"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", d.name, err, text)
			}
		}
		if after := migratedIn(cluster.Read(t, m.target)); after != before {
			t.Fatalf("%s: refused, and yet records were written:\n%s\n%s", d.name, before, after)
		}
		refusals++
	}
	if refusals < len(damages) {
		t.Errorf("only %d refusals", refusals)
	}
}

// migratedIn shows the records that are no padding.
func migratedIn(rs []reader.Record) string {
	var out strings.Builder
	for _, r := range rs {
		if provenanceOf(r) != "padding" {
			fmt.Fprintf(&out, "%d:%d %q %s %s\n", r.Partition, r.Offset, r.Key, show(r.Value), provenanceOf(r))
		}
	}
	return out.String()
}

// prefix says whether a target is what an interrupted apply may have left: all
// that is there is right, and for each pair of partitions nothing is missing
// before the last record.
func (m model) prefix(source, target []reader.Record) bool {
	last := map[[2]int32]int64{}
	for _, r := range target {
		if p, ok := readPosition(provenanceOf(r)); ok {
			last[[2]int32{p.Partition, r.Partition}] = max(last[[2]int32{p.Partition, r.Partition}], p.Offset+1)
		}
	}
	demanded := m.demanded(source, 3)
	for _, problem := range m.problems(source, target, 3) {
		missing := false
		for _, d := range demanded {
			missing = missing || strings.HasPrefix(problem, fmt.Sprintf("source %d:%d is missing", d.source.Partition, d.source.Offset)) &&
				d.source.Offset >= last[[2]int32{d.source.Partition, d.partition}]
		}
		if !missing {
			return false
		}
	}
	return true
}

// A resume after the source's tombstones may have vanished cannot know what
// was deleted meanwhile.
func TestResumePastTheHorizon(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), nil)
	cluster.AlterConfig(t, m.source, map[string]string{"delete.retention.ms": "600000"})
	m.planAndApply(t)
	good := cluster.Read(t, m.target)
	m.replace(t, m.target, 2, good[:len(good)-3])
	cluster.AlterConfig(t, m.target, duringCopy)
	before := migratedIn(cluster.Read(t, m.target))
	m.env.Now = func() time.Time { return time.Now().Add(30 * time.Minute) }
	_, err := Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 4, "keeps tombstones for", m.source)
	if after := migratedIn(cluster.Read(t, m.target)); after != before {
		t.Error("refused, and yet records were written")
	}
}

// What the first look at the target shows is refused before anything at all is
// written, padding included.
func TestForeignTargetIsLeftAlone(t *testing.T) {
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, tinyTopic(), nil)
	m.plan(t)
	foreign := reader.Record{Partition: 1, Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte("v")}
	if err := seed.CreateTopic(testcluster.Context(t), m.client, m.target, 2, -1, copyConfigs([]report.Config{{Name: "cleanup.policy", Value: "compact"}})); err != nil {
		t.Fatal(err)
	}
	m.write(t, m.target, []reader.Record{foreign})
	before := m.targetEnds(t)
	_, err := Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 6, m.target, "what this plan did not write", "partition 1, offset 0", "another program wrote it")
	if after := m.targetEnds(t); after != before {
		t.Errorf("the target was %s, it is %s", before, after)
	}
	o := m.options
	o.RunDir = filepath.Join(t.TempDir(), "run")
	if _, err := Plan(testcluster.Context(t), o, m.env); ExitCode(err) != 6 || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("plan: exit code %d: %v", ExitCode(err), err)
	}
}
