package keycodec

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
)

// Two UUIDs of testdata/names.tsv, an event and an action.
const (
	eventText  = "a2622b55-28e2-3a3c-9bde-7164cf05dbea"
	actionText = "30e6b546-354f-3cf6-a60e-7956be205a13"
	digestText = "u3es7pf5DW7QtfFzwef+7ur60j8knYpqC4pN8LhUGwc=" // of the string "1"
)

var eventUUID, actionUUID = uuid.MustParse(eventText), uuid.MustParse(actionText)

// expand spells out the short names of fields in test keys.
var expand = strings.NewReplacer(
	"{E}", eventText, "{EU}", strings.ToUpper(eventText),
	"{A}", actionText, "{AU}", strings.ToUpper(actionText),
	"{D}", digestText,
).Replace

func testKey(businessKey string) Key {
	return Key{BusinessKey: []byte(businessKey), Sequence: 7, Event: eventUUID, Action: actionUUID, KeyGroup: NoKeyGroup}
}

func flinkAgents04Of(t testing.TB, keyType KeyType) Format {
	t.Helper()
	f, err := NewFlinkAgents04(keyType, 128)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allFormats returns every format that can be parsed.
func allFormats(t testing.TB) []Format {
	return []Format{Legacy, KeyGroupFirst, KeyGroupLast, Escaped, LengthPrefixed, flinkAgents04Of(t, KeyString)}
}

func formatOf(t testing.TB, name string) Format {
	t.Helper()
	if name == NameFlinkAgents04 {
		return flinkAgents04Of(t, KeyString)
	}
	f, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func diffKeys(want, got Key) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(Key{}), cmpopts.EquateEmpty())
}

// row is a line of a tab-separated file.
type row struct {
	where  string // file:line
	fields []string
}

// readTSV returns the rows of a file after its header line. No rows is as fatal as no file: a test
// that checks nothing must not pass.
func readTSV(t testing.TB, name string) []row {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var rows []row
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if n > 1 && !strings.HasPrefix(lines.Text(), "#") {
			rows = append(rows, row{name + ":" + strconv.Itoa(n), strings.Split(lines.Text(), "\t")})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return rows
}

func (r row) want(t testing.TB, n int) {
	t.Helper()
	if len(r.fields) != n {
		t.Fatalf("%s: %d columns, want %d", r.where, len(r.fields), n)
	}
}

func number[T int | int32 | int64](t testing.TB, r row, text string) T {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(T(n)) != n {
		t.Fatalf("%s: bad number %q", r.where, text)
	}
	return T(n)
}

func unquote(t testing.TB, r row, text string) string {
	t.Helper()
	s, err := strconv.Unquote(expand(text))
	if err != nil {
		t.Fatalf("%s: bad string %s: %v", r.where, text, err)
	}
	return s
}
