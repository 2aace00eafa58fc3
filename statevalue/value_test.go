package statevalue

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type row struct {
	name string
	want Value
	text []byte
}

// rows reads testdata/values.tsv. A problem or layout that the package does not
// know is fatal.
func rows(t testing.TB) []row {
	t.Helper()
	content, err := os.ReadFile("testdata/values.tsv")
	if err != nil {
		t.Fatal(err)
	}
	known := map[Layout]bool{Layout01: true, Layout02: true, Layout03: true, Layout030: true, Layout031: true, Layout04: true, Unknown: true}
	var all []row
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "name\t") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 7 || !known[Layout(f[1])] || f[2] != "-" && Problem(f[2]).Meaning() == "" {
			t.Fatalf("%q: want seven fields, a known layout and a known problem", line)
		}
		r := row{name: f[0], text: []byte(f[6]), want: Value{Layout: Layout(f[1]), Completed: f[4] == "true", Envelope: f[5] == "true"}}
		if f[2] != "-" {
			r.want.Problem = Problem(f[2])
		}
		if f[3] != "-" {
			r.want.EventType = []byte(f[3])
		}
		all = append(all, r)
	}
	return all
}

func TestLook(t *testing.T) {
	layouts, problems := map[Layout]bool{}, map[Problem]bool{}
	for _, r := range rows(t) {
		t.Run(r.name, func(t *testing.T) {
			got := Look(r.text)
			if got.Layout != r.want.Layout || got.Problem != r.want.Problem || got.Completed != r.want.Completed || got.Envelope != r.want.Envelope || !bytes.Equal(got.EventType, r.want.EventType) {
				t.Errorf("got %s %q event %q completed %t envelope %t\nwant %s %q event %q completed %t envelope %t", got.Layout, got.Problem, got.EventType, got.Completed, got.Envelope,
					r.want.Layout, r.want.Problem, r.want.EventType, r.want.Completed, r.want.Envelope)
			}
		})
		layouts[r.want.Layout], problems[r.want.Problem] = true, true
	}
	if len(layouts) != 7 {
		t.Errorf("values of the layouts %v only", layouts)
	}
	for _, problem := range Problems() {
		if !problems[problem] {
			t.Errorf("no value shows the problem %s", problem)
		}
	}
}

// A value is looked at once or twice for each record of a topic.
func TestLookDoesNotAllocate(t *testing.T) {
	for _, r := range rows(t) {
		if n := testing.AllocsPerRun(10, func() { Look(r.text) }); n != 0 {
			t.Errorf("%s: %v allocations", r.name, n)
		}
	}
}

func TestDeepValues(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(`{"taskEvent":{"type":"x","attributes":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `},"outputEvents":[]}`)
	}
	if got := Look(nested(deepest)); got.Problem != "" {
		t.Errorf("%d deep: %s", deepest, got.Problem)
	}
	if got := Look(nested(deepest + 1)); got.Problem != NotAState {
		t.Errorf("%d deep: %q", deepest+1, got.Problem)
	}
}

// Whatever a value holds, looking at it ends and says one of the known things.
// What the standard library reads as a state is one.
func FuzzLook(f *testing.F) {
	for _, r := range rows(f) {
		f.Add(r.text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Look(text)
		if got.Layout == "" || got.Problem != "" && got.Problem.Meaning() == "" || got.Layout == Unknown && got.Problem == "" {
			t.Fatalf("%q: layout %q, problem %q", text, got.Layout, got.Problem)
		}
		// Escapes in names are not looked through: nothing writes them.
		var state map[string]json.RawMessage
		if bytes.IndexByte(text, '\\') < 0 && json.Unmarshal(text, &state) == nil && state["taskEvent"] != nil && got.Problem == NotAState {
			t.Fatalf("%q is a state", text)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	for _, r := range rows(b) {
		if r.name != "0.3.1" {
			continue
		}
		large := bytes.Replace(r.text, []byte(`"hi"`), []byte(`"`+strings.Repeat("some text ", 100)+`"`), 1)
		for name, text := range map[string][]byte{"small": r.text, "large": large} {
			b.Run(name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					Look(text)
				}
			})
		}
	}
}
