package main

import (
	"bytes"
	order "cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/keycodec"
	"rekey/report"
)

var update = flag.Bool("update", false, "write want and report of the topic cases as they come out now")

const casesDir = "fixtures/cases"

// TestCases runs every folder of fixtures/cases through plan, apply and verify.
// fixtures/cases/README.md says what the files of a folder hold.
func TestCases(t *testing.T) {
	for _, c := range topicCases(t) {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
		})
	}
}

// TestCasesAreComplete holds the folders to the closed lists of keycodec: each
// reason and each cause of a suggestion has a case that shows it.
func TestCasesAreComplete(t *testing.T) {
	// No plan can meet these two: they are faults of target formats, which --from
	// does not take. A damaged length-prefixed key is already-encoded.
	unreachable := []keycodec.Reason{keycodec.BadEscape, keycodec.BadLength}
	for _, from := range keycodec.SourceNames() {
		if from == keycodec.Escaped.Name() || from == keycodec.LengthPrefixed.Name() {
			t.Errorf("%s is a source now: it needs cases", from)
		}
	}
	shown := map[string]bool{}
	for _, c := range topicCases(t) {
		reason, isReason := strings.CutPrefix(c.name, "reason-")
		cause, isCause := strings.CutPrefix(c.name, "suggestion-")
		for _, bad := range c.wantBadKeys(t) {
			if isReason && bad.Reason == reason {
				shown["reason "+reason] = true
			}
			if isCause && bad.Suggestion != nil && bad.Suggestion.Cause == cause {
				shown["cause "+cause] = true
			}
		}
	}
	for _, reason := range keycodec.Reasons() {
		if !slices.Contains(unreachable, reason) && !shown["reason "+string(reason)] {
			t.Errorf("no case reason-%s shows that reason", reason)
		}
	}
	for _, cause := range keycodec.Causes() {
		if !shown["cause "+cause] {
			t.Errorf("no case suggestion-%s shows that cause", cause)
		}
	}
}

// topicCase is a folder of fixtures/cases.
type topicCase struct {
	name string
	seed seed.Seed
	args []string
	want string
	// Of the file report: lines of unparseable.jsonl, and facts about report.json.
	badKeys []string
	facts   []string // PATH = VALUE
}

// topicCases reads all folders. Whatever is not as the README says is fatal: a
// case that is not run must not look like one that passed.
func topicCases(t *testing.T) []topicCase {
	t.Helper()
	entries, err := os.ReadDir(casesDir)
	if err != nil {
		t.Fatal(err)
	}
	var cases []topicCase
	for _, entry := range entries {
		switch {
		case entry.IsDir():
			cases = append(cases, readCase(t, entry.Name()))
		case entry.Name() != "README.md":
			t.Fatalf("%s is no case", filepath.Join(casesDir, entry.Name()))
		}
	}
	if len(cases) == 0 {
		t.Fatalf("no cases in %s", casesDir)
	}
	return cases
}

func readCase(t *testing.T, name string) topicCase {
	t.Helper()
	dir := filepath.Join(casesDir, name)
	c := topicCase{name: name}
	known := map[string]bool{"seed": true, "args": true, "want": true, "report": true}
	read := func(file string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil && !(*update && os.IsNotExist(err) && (file == "want" || file == "report")) {
			t.Fatal(err)
		}
		return content
	}
	var err error
	if c.seed, err = seed.ParseSeed(read("seed")); err != nil {
		t.Fatalf("%s: %v", filepath.Join(dir, "seed"), err)
	}
	described := false
	for line := range strings.Lines(string(read("args"))) {
		line = strings.TrimSpace(line)
		if comment, is := strings.CutPrefix(line, "#"); is {
			described = described || strings.TrimSpace(comment) != ""
			continue
		}
		name, value, hasValue := strings.Cut(line, " ")
		if name != "" {
			c.args = append(c.args, name)
		}
		if file, is := strings.CutPrefix(value, "@"); is {
			known[file] = true
			value = filepath.Join(dir, file)
		}
		if hasValue {
			c.args = append(c.args, value)
		}
	}
	if !described {
		t.Fatalf("%s: no comment says what the case is about", filepath.Join(dir, "args"))
	}
	c.want = string(read("want"))
	said := read("report")
	if !*update && len(said) == 0 {
		t.Fatalf("%s says nothing", filepath.Join(dir, "report"))
	}
	for line := range strings.Lines(string(said)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "{"):
			c.badKeys = append(c.badKeys, line)
		case strings.Contains(line, " = "):
			c.facts = append(c.facts, line)
		default:
			t.Fatalf("%s: %q is neither a line of unparseable.jsonl nor a fact", filepath.Join(dir, "report"), line)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !known[file.Name()] {
			t.Fatalf("%s: unknown file %s", dir, file.Name())
		}
	}
	return c
}

func (c *topicCase) wantBadKeys(t *testing.T) []report.BadKey {
	t.Helper()
	var keys []report.BadKey
	for _, line := range c.badKeys {
		var key report.BadKey
		if err := json.Unmarshal([]byte(line), &key); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		keys = append(keys, key)
	}
	return keys
}

func (c *topicCase) run(t *testing.T) {
	cluster := testcluster.Start(t)
	source, target, dir := cluster.Topic(t, "source"), cluster.Topic(t, "target"), filepath.Join(t.TempDir(), "run")
	applied, err := seed.Apply(testcluster.Context(t), cluster.Addrs(), source, c.seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), testcluster.Deadline)
		defer cancel()
		if err := applied.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	before := cluster.Read(t, source)
	names := strings.NewReplacer(source, "SOURCE", target, "TARGET", dir, "RUN", cluster.Bootstrap(), "BROKER")
	phase := func(name string, flags ...string) (code int, stderr string) {
		var out, failure bytes.Buffer
		args := append([]string{"rekey", name, "--bootstrap-server", cluster.Bootstrap(), "--run-dir", dir, "--quiet"}, flags...)
		code = run(args, strings.NewReader(""), &out, &failure)
		return code, names.Replace(failure.String())
	}
	// What came out: the records of the target, or the phase that failed.
	got := ""
	code, stderr := phase("plan", append([]string{"--source", source, "--target", target}, c.args...)...)
	if code != 0 {
		got = fmt.Sprintf("plan exits %d\n%s", code, stderr)
		if _, err := os.Stat(filepath.Join(dir, "plan.json")); err == nil {
			if again, _ := phase("apply"); again != code {
				t.Errorf("apply of the refused plan exits %d, plan did with %d", again, code)
			}
		}
	} else if code, stderr = phase("apply"); code != 0 {
		got = fmt.Sprintf("apply exits %d\n%s", code, stderr)
	} else if code, stderr = phase("verify"); code != 0 {
		got = fmt.Sprintf("verify exits %d\n%s", code, stderr)
	} else {
		records := bySource(withoutPadding(cluster.Read(t, target)))
		got = seed.Format(records)
		c.checkPartitions(t, records)
	}
	if diff := cmp.Diff(before, cluster.Read(t, source)); diff != "" {
		t.Errorf("the source changed (-before +after)\n%s", diff)
	}
	c.compare(t, got, dir)
}

// checkPartitions compares the partitions of escaped keys with the partitioner of
// package seed, which is not the product's: -update cannot make a wrong partition
// the expected one.
func (c *topicCase) checkPartitions(t *testing.T, records []reader.Record) {
	t.Helper()
	for _, flag := range []string{"--to", "--partitioner", "copy", "--target-partitions"} {
		if slices.Contains(c.args, flag) {
			return
		}
	}
	for _, r := range records {
		if want := seed.Partition(r.Key, c.seed.Partitions); r.Partition != want {
			t.Errorf("the key %q is on partition %d, the job would look on %d", r.Key, r.Partition, want)
		}
	}
}

// withoutPadding leaves out the records whose only purpose is to move offsets;
// their timestamps are those of the run.
func withoutPadding(records []reader.Record) []reader.Record {
	return slices.DeleteFunc(records, func(r reader.Record) bool {
		return slices.ContainsFunc(r.Headers, func(h seed.Header) bool {
			return string(h.Key) == "rekey-source" && string(h.Value) == "padding"
		})
	})
}

// bySource puts the records of each partition in the order of the source
// partitions they came from, and leaves the order of each such partition as it
// is: apply copies several at once, and only that order means something.
func bySource(records []reader.Record) []reader.Record {
	source := func(r reader.Record) int {
		for _, h := range r.Headers {
			if string(h.Key) == "rekey-source" {
				partition, _, _ := strings.Cut(string(h.Value), ":")
				n, err := strconv.Atoi(partition)
				if err == nil {
					return n
				}
			}
		}
		return -1
	}
	slices.SortStableFunc(records, func(a, b reader.Record) int {
		return order.Or(order.Compare(a.Partition, b.Partition), order.Compare(source(a), source(b)))
	})
	return records
}

// compare compares what came out with want and report, or writes these.
func (c *topicCase) compare(t *testing.T, got, dir string) {
	t.Helper()
	var badKeys []string
	var facts any
	if content, err := os.ReadFile(filepath.Join(dir, "unparseable.jsonl")); err == nil {
		badKeys = strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
	}
	if content, err := os.ReadFile(filepath.Join(dir, "report.json")); err == nil {
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		if err := decoder.Decode(&facts); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		c.write(t, got, badKeys, facts)
		return
	}
	if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("want (-want +got)\n%s", diff)
		if evidence, err := os.ReadFile(filepath.Join(dir, "verify.json")); err == nil {
			t.Logf("verify.json:\n%s", evidence)
		}
	}
	if diff := cmp.Diff(c.badKeys, badKeys, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("unparseable.jsonl (-want +got)\n%s", diff)
	}
	for _, fact := range c.facts {
		path, want, _ := strings.Cut(fact, " = ")
		if got := factAt(t, facts, path); got != want {
			t.Errorf("the report has %s = %s, want %s", path, got, want)
		}
	}
}

// write writes want and report. Facts stay those that are asked for; a new case
// begins with all counts that are not 0 and the codes of all findings.
func (c *topicCase) write(t *testing.T, got string, badKeys []string, facts any) {
	t.Helper()
	var paths []string
	for _, fact := range c.facts {
		path, _, _ := strings.Cut(fact, " = ")
		paths = append(paths, path)
	}
	if object, ok := facts.(map[string]any); ok && len(paths) == 0 {
		counts := object["counts"].(map[string]any)
		for name, n := range counts {
			if fmt.Sprint(n) != "0" && name != "bytes" && name != "largest_record_bytes" {
				paths = append(paths, "counts."+name)
			}
		}
		slices.Sort(paths)
		paths = append(paths, "verdict.code")
		for _, list := range []struct{ name, by string }{{"findings", "code"}, {"traits", "trait"}} {
			for _, item := range object[list.name].([]any) {
				code := item.(map[string]any)[list.by]
				field := map[string]string{"findings": "severity", "traits": "records"}[list.name]
				paths = append(paths, fmt.Sprintf("%s[%s=%s].%s", list.name, list.by, code, field))
			}
		}
	}
	var text strings.Builder
	if facts == nil {
		text.WriteString("# The plan ended before there was a report.\n")
	}
	for _, path := range paths {
		fmt.Fprintf(&text, "%s = %s\n", path, factAt(t, facts, path))
	}
	for _, line := range badKeys {
		fmt.Fprintln(&text, line)
	}
	for name, content := range map[string]string{"want": got, "report": text.String()} {
		if err := os.WriteFile(filepath.Join(casesDir, c.name, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// factAt is the JSON at a path: names joined by dots, each of a list with the
// element to look at, as in findings[code=misplaced].severity. What is not there
// is null.
func factAt(t *testing.T, facts any, path string) string {
	t.Helper()
	at := facts
	for step := range strings.SplitSeq(path, ".") {
		name, filter, filtered := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		object, _ := at.(map[string]any)
		at = object[name]
		if !filtered {
			continue
		}
		field, want, ok := strings.Cut(filter, "=")
		list, isList := at.([]any)
		if !ok || object != nil && !isList {
			t.Fatalf("%s: %q picks no element of a list", path, step)
		}
		at = nil
		for _, item := range list {
			if fields, _ := item.(map[string]any); fmt.Sprint(fields[field]) == want {
				at = item
			}
		}
	}
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
