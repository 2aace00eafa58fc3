package keycodec

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeyFormatDoc runs what docs/key-format.md shows: every table and every hex dump, each of which
// must be there. A table with a header that is not known here is fatal, lest it be read and not run.
func TestKeyFormatDoc(t *testing.T) {
	page, err := os.ReadFile("../docs/key-format.md")
	if err != nil {
		t.Fatal(err)
	}
	flinkAgents, _ := LookupPartitioner("flink-agents")
	javaDefault, _ := LookupPartitioner("java-default")

	tables := map[string]func(t *testing.T, cells []string){
		"||`escaped`|`length-prefixed`|`flink-agents-0.4`|": nil, // prose
		"|key type|Flink key|serialized form|hashCode|": func(t *testing.T, cells []string) {
			if _, err := ParseKeyType(strings.Trim(cells[0], "`")); err != nil {
				t.Error(err)
			}
		},
		"|text|java_hash (signed)|flink_murmur|partition of 64|": func(t *testing.T, cells []string) {
			hash := JavaHash([]byte(jsonText(t, cells[0])))
			wantCells(t, cells[1:], hash, FlinkMurmur(hash), FlinkMurmur(hash)%64)
		},
		"|format|business key|key|partition of 64|java-default, of 64|": func(t *testing.T, cells []string) {
			f, want := formatOf(t, cells[0]), testKey(jsonText(t, cells[1]))
			stateKey := []byte(jsonText(t, cells[2]))
			var k Key
			if err := f.Parse(&k, stateKey); err != nil {
				t.Fatal(err)
			}
			if diff := diffKeys(want, k); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if text, err := f.Append(nil, &want); err != nil || string(text) != string(stateKey) {
				t.Errorf("appended %q, %v", text, err)
			}
			wantCells(t, cells[3:], flinkAgents.Partition(f, stateKey, &k, 0, 64), javaDefault.Partition(f, stateKey, &k, 0, 64))
		},
		"|format|key|reason|": func(t *testing.T, cells []string) {
			var pe *ParseError
			err := formatOf(t, cells[0]).Parse(new(Key), []byte(jsonText(t, cells[1])))
			if !errors.As(err, &pe) || string(pe.Reason) != cells[2] {
				t.Errorf("%v, want reason %s", err, cells[2])
			}
		},
		"|key type|text|serialized|hashCode|key at max parallelism 128|partition of 64|": func(t *testing.T, cells []string) {
			keyType, k := KeyType(cells[0]), testKey(jsonText(t, cells[1]))
			serialized, hash, err := keyType.Serialize(nil, k.BusinessKey)
			if err != nil {
				t.Fatal(err)
			}
			f := flinkAgents04Of(t, keyType)
			stateKey, err := f.Append(nil, &k)
			if err != nil || string(stateKey) != jsonText(t, cells[4]) {
				t.Errorf("appended %q, %v", stateKey, err)
			}
			wantCells(t, slices.Concat(cells[2:4], cells[5:]), "`"+hex.EncodeToString(serialized)+"`", hash,
				flinkAgents.Partition(f, stateKey, &k, 0, 64))
		},
	}
	unseen := map[string]bool{"hex escaped": true, "hex length-prefixed": true}
	for header := range tables {
		unseen[header] = true
	}

	lines := strings.Split(string(page), "\n")
	for n := 0; n < len(lines); n++ {
		switch line := lines[n]; {
		case strings.HasPrefix(line, "```"):
			info, start := line[3:], n+1
			for n++; lines[n] != "```"; n++ {
			}
			if strings.HasPrefix(info, "hex") {
				words := strings.SplitN(info, " ", 3)
				delete(unseen, "hex "+words[1])
				checkHexDump(t, formatOf(t, words[1]), words[2], lines[start:n])
			}
		case strings.HasPrefix(line, "|"):
			header := "|" + strings.Join(cellsOf(line), "|") + "|"
			check, known := tables[header]
			if !known {
				t.Fatalf("line %d: no check for the table %s", n+1, header)
			}
			delete(unseen, header)
			rows := 0
			for n += 2; strings.HasPrefix(lines[n], "|"); n++ {
				rows++
				if check != nil {
					t.Run("line "+strconv.Itoa(n+1), func(t *testing.T) { check(t, cellsOf(lines[n])) })
				}
			}
			if rows == 0 {
				t.Errorf("line %d: empty table", n+1)
			}
		}
	}
	for what := range unseen {
		t.Errorf("the page lacks %s", what)
	}
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// jsonText reads a cell such as `"user_123"`.
func jsonText(t *testing.T, cell string) string {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(strings.Trim(cell, "`")), &text); err != nil {
		t.Fatalf("%s: %v", cell, err)
	}
	return expand(text)
}

func wantCells(t *testing.T, cells []string, values ...any) {
	t.Helper()
	if len(cells) != len(values) {
		t.Fatalf("%d cells, want %d", len(cells), len(values))
	}
	for i, value := range values {
		got, isText := value.(string)
		if !isText {
			got = strconv.FormatInt(int64(value.(int32)), 10)
		}
		if got != cells[i] {
			t.Errorf("the page says %s, it is %s", cells[i], got)
		}
	}
}

func checkHexDump(t *testing.T, f Format, businessKey string, dump []string) {
	t.Helper()
	var digits strings.Builder
	for _, line := range dump {
		line, _, _ = strings.Cut(line, ";")
		digits.WriteString(strings.ReplaceAll(line, " ", ""))
	}
	got, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	k := testKey(businessKey)
	want, err := f.Append(nil, &k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("hex dump of %s (-want +got)\n%s", f.Name(), diff)
	}
}

// TestPackageDoc holds the tables of the package documentation to the code.
func TestPackageDoc(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	firstWords := func(section string) (words []string) {
		_, text, ok := strings.Cut(string(source), "// # "+section+"\n")
		if !ok {
			t.Fatalf("no section %s", section)
		}
		text, _, _ = strings.Cut(text, "// # ")
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, "//\t"); ok && rest[0] != ' ' {
				words = append(words, strings.Fields(rest)[0])
			}
		}
		return words
	}
	formats := slices.Concat([]string{"name"}, SourceNames(), []string{"dashed"}, TargetNames())
	if diff := cmp.Diff(formats, firstWords("Formats")); diff != "" {
		t.Errorf("formats (-code +documentation)\n%s", diff)
	}
	var codes []string
	for _, reason := range Reasons() {
		codes = append(codes, string(reason))
	}
	if diff := cmp.Diff(codes, firstWords("Reasons")); diff != "" {
		t.Errorf("reasons (-code +documentation)\n%s", diff)
	}
}
