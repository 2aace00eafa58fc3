package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rekey/fixtures/flinkkeys"
	"rekey/keycodec"
	"rekey/migrate"
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

// A wrong bit in a digest, a hash code or a key group puts a key where the job
// does not look for it. So the codec behind every command is compared with
// Flink's own classes, and for some of the keys the answer of rekey explain.
func TestKeysAgainstFlink(t *testing.T) {
	if os.Getenv("REKEY_TEST_BROKER") != "kafka" {
		t.Skip("needs a JDK and Maven: make test-kafka")
	}
	count := 100_000
	if testing.Short() {
		count = 5_000
	}
	for _, version := range flinkkeys.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			seen, wrong := map[string]int{}, 0
			err := flinkkeys.Each(t.Context(), version, count, 20261101, func(key flinkkeys.Key) error {
				seen[key.Type]++
				err := checkFlinkKey(key)
				if err == nil && seen[key.Type]%50 == 0 {
					err = explainFlinkKey(key)
				}
				if err != nil {
					t.Errorf("%s key %q: %v", key.Type, key.Text, err)
					if wrong++; wrong == 20 {
						return errors.New("more of them are not shown")
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, keyType := range keycodec.KeyTypes() {
				if seen[string(keyType)] != count {
					t.Errorf("%d keys of type %s, want %d", seen[string(keyType)], keyType, count)
				}
			}
		})
	}
}

// check compares what keycodec makes of the text of a key.
func checkFlinkKey(key flinkkeys.Key) error {
	keyType, err := keycodec.ParseKeyType(key.Type)
	if err != nil {
		return err
	}
	serialized, hash, err := keyType.Serialize(nil, key.Text)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(serialized, key.Serialized):
		return fmt.Errorf("serialized %x, Flink has %x", serialized, key.Serialized)
	case hash != key.HashCode:
		return fmt.Errorf("hash code %d, Java has %d", hash, key.HashCode)
	}
	format, err := keycodec.NewFlinkAgents04(keyType, key.MaxParallelism)
	if err != nil {
		return err
	}
	encoded, err := format.Append(nil, &keycodec.Key{BusinessKey: key.Text, Sequence: 7})
	if err != nil {
		return err
	}
	var parsed keycodec.Key
	if err := format.Parse(&parsed, encoded); err != nil {
		return err
	}
	partitioner, err := keycodec.LookupPartitioner("flink-agents")
	if err != nil {
		return err
	}
	return sameFlinkKey(key, parsed.KeyGroup, string(parsed.Digest), partitioner.Partition(format, encoded, &parsed, 0, key.Partitions))
}

func sameFlinkKey(key flinkkeys.Key, group int32, digest string, partition int32) error {
	switch {
	case group != key.KeyGroup:
		return fmt.Errorf("key group %d of %d, Flink has %d", group, key.MaxParallelism, key.KeyGroup)
	case digest != key.Digest:
		return fmt.Errorf("digest %s, Java has %s", digest, key.Digest)
	case partition != key.Partition:
		return fmt.Errorf("partition %d of %d, Flink's hash gives %d", partition, key.Partitions, key.Partition)
	}
	return nil
}

// explain asks as a person would, with a whole state key.
func explainFlinkKey(key flinkkeys.Key) error {
	options := migrate.ExplainOptions{From: "legacy", To: keycodec.NameFlinkAgents04, Partitioner: "flink-agents", Partitions: key.Partitions,
		ForRelease04: migrate.ForRelease04{KeyType: key.Type, MaxParallelism: key.MaxParallelism}}
	stateKey, err := keycodec.Legacy.Append(nil, &keycodec.Key{BusinessKey: key.Text, Sequence: 7})
	if err != nil {
		return err
	}
	e, err := migrate.Explain(options, stateKey)
	switch {
	case err != nil:
		return err
	case e.FlinkKey == nil || e.After == nil:
		return fmt.Errorf("explain says %s: %s", e.Reason, e.Detail)
	case e.FlinkKey.Serialized != fmt.Sprintf("%x", key.Serialized) || e.FlinkKey.HashCode != key.HashCode:
		return fmt.Errorf("explain says serialized %s, hash code %d", e.FlinkKey.Serialized, e.FlinkKey.HashCode)
	}
	return sameFlinkKey(key, e.FlinkKey.KeyGroup, e.FlinkKey.Digest, *e.After)
}
