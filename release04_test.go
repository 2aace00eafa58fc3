package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rekey/report"
)

// Every key that Java's and Flink's own classes were asked about goes through
// rekey explain, as a script would ask it.
func TestExplainFlinkKeys(t *testing.T) {
	const rest = "_7_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448"
	rows := 0
	for _, file := range []string{"flink-keys.tsv", "flink-classes.tsv"} {
		content, err := os.ReadFile("keycodec/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if strings.HasPrefix(line, "#") || f[0] == "type" {
				continue
			}
			if len(f) != 8 {
				t.Fatalf("%s: %q has %d fields", file, line, len(f))
			}
			var text string
			if err := json.Unmarshal([]byte(`"`+f[1]+`"`), &text); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			rows++
			var out, failure bytes.Buffer
			code := run([]string{"rekey", "explain", "--to", "flink-agents-0.4", "--key-type", f[0], "--partitions", "64", "--output", "json", "--", text + rest},
				strings.NewReader(""), &out, &failure)
			if code != 0 {
				t.Fatalf("%s %q: exits %d: %s", f[0], text, code, failure.String())
			}
			var e report.Explanation
			if err := json.Unmarshal(out.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			before := "-"
			if e.Before != nil {
				before = strconv.Itoa(int(*e.Before))
			}
			if !e.Parses || e.FlinkKey == nil {
				t.Errorf("%s %q: %+v", f[0], text, e)
				continue
			}
			got := []string{fmt.Sprint(e.FlinkKey.HashCode), e.FlinkKey.Serialized, e.FlinkKey.Digest, fmt.Sprint(e.FlinkKey.KeyGroup), before, fmt.Sprint(*e.After)}
			if want := f[2:]; !slices.Equal(got, want) {
				t.Errorf("%s %q: %s, want %s", f[0], text, got, want)
			}
		}
	}
	if rows < 100 {
		t.Errorf("only %d rows", rows)
	}
}
