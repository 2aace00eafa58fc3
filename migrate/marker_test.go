package migrate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cleanupPlanFile is a plan in the form of Flink Agents' cleanup of action
// state; its planId is right.
const cleanupPlanFile = `{
  "schemaVersion" : 1,
  "planId" : "PLAN",
  "sourceRecoveryPoint" : "s3://savepoints/sp-1",
  "topic" : "action-state",
  "topicId" : "AAECAwQFBgcICQoLDA0ODw",
  "offsets" : {
    "0" : 10,
    "1" : 30
  }
}`

func sampleCleanupPlan() string {
	plan := cleanupPlan{topic: "action-state", topicID: "AAECAwQFBgcICQoLDA0ODw", recoveryPoint: "s3://savepoints/sp-1"}
	return strings.Replace(cleanupPlanFile, "PLAN", plan.id(marker{0: 10, 1: 30}), 1)
}

func TestParseMarkers(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    []marker
		merged  marker
		topic   string
	}{
		"one":          {`{"offsets": {"0": 123, "1": 0}}`, []marker{{0: 123, 1: 0}}, marker{0: 123, 1: 0}, ""},
		"largest":      {`{"offsets":{"2147483647":9223372036854775807}}`, []marker{{1<<31 - 1: 1<<63 - 1}}, marker{1<<31 - 1: 1<<63 - 1}, ""},
		"subtasks":     {`[{"offsets":{"0":15,"1":30}},{"offsets":{"0":10,"1":35}}]`, []marker{{0: 15, 1: 30}, {0: 10, 1: 35}}, marker{0: 10, 1: 30}, ""},
		"disjoint":     {`[{"offsets":{"0":15}},{"offsets":{"1":35}}]`, []marker{{0: 15}, {1: 35}}, marker{0: 15, 1: 35}, ""},
		"cleanup plan": {sampleCleanupPlan(), []marker{{0: 10, 1: 30}}, marker{0: 10, 1: 30}, "action-state"},
		"own marker":   {`{"schemaVersion":1,"topic":"t","topicId":"i","offsets":{"0":1}}`, []marker{{0: 1}}, marker{0: 1}, "t"},
	} {
		set, err := parseMarkers([]byte(c.content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, set.markers); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(c.merged, set.merged()); diff != "" || set.topic != c.topic {
			t.Errorf("%s: topic %q, merged %s", name, set.topic, diff)
		}
	}
}

func TestParseMarkersRefuses(t *testing.T) {
	for content, want := range map[string]string{
		``:                                      "line 1: the file ends too early",
		`{"offsets":{"0":1}`:                    "line 1: the file ends too early",
		`null`:                                  "null, want an object",
		`7`:                                     "holds 7",
		`[]`:                                    "the list is empty",
		`[7]`:                                   "entry 1 of the list is 7",
		`{}`:                                    "the file has no offsets",
		`[{"offsets":{"0":1}},{}]`:              "entry 2 of the list has no offsets",
		`{"offsets":{}}`:                        "the file names no partition",
		`{"offsets":null}`:                      "offsets of the file are null",
		`{"offsets":[1]}`:                       "offsets of the file are a list",
		`{"0":1}`:                               `unknown field "0"`,
		`{"Offsets":{"0":1}}`:                   `unknown field "Offsets"`,
		`{"offsets":{"0":1},"more":1}`:          `unknown field "more"`,
		`{"offsets":{"0":1},"offsets":{"0":2}}`: `the field "offsets" twice`,
		"{\"offsets\":{\"0\":1,\n\"0\":2}}":     "line 2: the file has partition 0 twice",
		`{"offsets":{"0":-1}}`:                  "partition 0: -1 is no offset: it is negative",
		`{"offsets":{"-1":1}}`:                  `"-1" is no partition number: it is negative`,
		`{"offsets":{"01":1}}`:                  `"01" is no partition number: it has a leading zero`,
		`{"offsets":{"+1":1}}`:                  `"+1" is no partition number`,
		`{"offsets":{"p":1}}`:                   `"p" is no partition number: it is no whole`,
		`{"offsets":{"2147483648":1}}`:          "is no partition number: it is above 2147483647",
		`{"offsets":{"0":9223372036854775808}}`: "is no offset: it is above",
		`{"offsets":{"0":01}}`:                  "line 1: invalid character",
		`{"offsets":{"0":1.0}}`:                 "1.0 is no offset: it is no whole decimal number",
		`{"offsets":{"0":1e3}}`:                 "1e3 is no offset",
		`{"offsets":{"0":"1"}}`:                 `the offset is "1", want a number`,
		`{"offsets":{"0":null}}`:                "the offset is null",
		`{"offsets":{"0":1}}{}`:                 "something follows the marker",
		`{"schemaVersion":2,"offsets":{"0":1}}`: "schemaVersion of the file is 2",
		`{"topic":"","offsets":{"0":1}}`:        `topic of the file is ""`,
		`{"topicId":null,"offsets":{"0":1}}`:    "topicId of the file is null",
		`[{"topic":"a","offsets":{"0":1}},{"offsets":{"0":1}}]`: "entry 2 of the list is of another topic",
		strings.Replace(sampleCleanupPlan(), "30", "31", 1):     "planId of the file does not match",
	} {
		_, err := parseMarkers([]byte(content))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  got  %v\n  want %s", content, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "savepoint.json")
	if err := os.WriteFile(file, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + ".none"} {
		if _, err := readMarkers(path); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want ErrUsage that names the file", path, err)
		}
	}
}

// TestMarkerOfAnotherTopic: who restores a savepoint of another topic must hear
// that, and not of lost states.
func TestMarkerOfAnotherTopic(t *testing.T) {
	p := &plan{Source: planSource{Topic: "action-state", TopicID: "00010203-0405-0607-0809-0a0b0c0d0e0f", Partitions: 2}}
	for name, c := range map[string]struct {
		set  markerSet
		kind error
		want string
	}{
		"says nothing":    {markerSet{markers: []marker{{0: 1}}}, nil, ""},
		"cleanup plan":    {markerSet{topic: "action-state", topicID: "AAECAwQFBgcICQoLDA0ODw", markers: []marker{{0: 1, 1: 5}}}, nil, ""},
		"UUID form":       {markerSet{topicID: "00010203-0405-0607-0809-0A0B0C0D0E0F"}, nil, ""},
		"other topic":     {markerSet{topic: "other"}, ErrChanged, "is for the topic other"},
		"other id":        {markerSet{topic: "action-state", topicID: "BAECAwQFBgcICQoLDA0ODw"}, ErrChanged, "topic id BAECAwQFBgcICQoLDA0ODw"},
		"no id at all":    {markerSet{topicID: "x"}, ErrChanged, "topic id x"},
		"other partition": {markerSet{markers: []marker{{0: 1}, {2: 1}}}, ErrUsage, "names partition 2, but action-state has the partitions 0 to 1"},
	} {
		err := c.set.checkSource(p)
		if c.kind == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %v: %s", name, err, c.kind, c.want)
		}
	}
}
