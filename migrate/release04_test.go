package migrate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/keycodec"
	"rekey/rewrite"
)

// pythonAction is a row of testdata/python-actions.tsv, which release 0.2.0's
// own classes printed.
type pythonAction struct {
	name, module, qualified string
	events                  []string
	old                     string // the action UUID in its state keys
}

func pythonActions(t *testing.T) []pythonAction {
	t.Helper()
	content, err := os.ReadFile("testdata/python-actions.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var actions []pythonAction
	for line := range strings.Lines(string(content)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || f[0] == "name" {
			continue
		}
		var key keycodec.Key
		if err := keycodec.Legacy.Parse(&key, []byte(f[5])); err != nil {
			t.Fatalf("%s: %v", f[5], err)
		}
		actions = append(actions, pythonAction{f[0], f[1], f[2], strings.Split(f[3], ","), key.Action.String()})
	}
	if len(actions) == 0 {
		t.Fatal("no actions")
	}
	return actions
}

func TestOldPythonActions(t *testing.T) {
	for _, a := range pythonActions(t) {
		if got := oldPythonAction(a.name, a.module, a.qualified, a.events); got != a.old {
			t.Errorf("%s: %s, want %s", a.name, got, a.old)
		}
	}
}

// writeFile writes a file of a test and gives its path.
func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestActionNames(t *testing.T) {
	actions := pythonActions(t)
	planned := map[string]any{"java": map[string]any{"name": "java", "exec": map[string]any{"func_type": "JavaFunction", "qualname": "a.B", "method_name": "m"}, "listen_event_types": []string{"x"}}}
	want := actionNames{}
	for i, a := range actions {
		events := "listen_event_types"
		if i == 1 {
			events = "trigger_conditions"
		}
		planned[a.name] = map[string]any{"name": a.name, "exec": map[string]any{"func_type": "PythonFunction", "module": a.module, "qualname": a.qualified}, events: a.events, "config": nil}
		want[a.old] = a.name
	}
	document, err := json.Marshal(map[string]any{"actions": planned, "actions_by_event": map[string]any{}, "resource_providers": nil})
	if err != nil {
		t.Fatal(err)
	}
	plan := writeFile(t, "plan.json", string(document))
	got, err := ForRelease04{AgentPlan: plan}.actionNames()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}

	const java = "30e6b546-354f-3cf6-a60e-7956be205a13"
	names := writeFile(t, "actions.json", fmt.Sprintf(`{%q: "java", %q: %q}`, java, actions[0].old, actions[0].name))
	want[java] = "java"
	got, err = ForRelease04{AgentPlan: plan, Actions: names}.actionNames()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	for name, c := range map[string]struct{ plan, actions, want string }{
		"two names for one":   {plan, fmt.Sprintf(`{%q: "other"}`, actions[0].old), `is "other" in --actions and "first_action" in --agent-plan`},
		"no name":             {"", fmt.Sprintf(`{%q: ""}`, java), "has no name"},
		"upper case":          {"", `{"30E6B546-354F-3CF6-A60E-7956BE205A13": "a"}`, "is no UUID of 36 characters of lower-case hex"},
		"no UUID":             {"", `{"think": "a"}`, `"think" is no UUID`},
		"twice":               {"", fmt.Sprintf(`{%q: "a", %[1]q: "b"}`, java), "appears twice"},
		"no object":           {"", `["a"]`, "cannot unmarshal"},
		"no JSON":             {"", `{`, "unexpected"},
		"a plan without ours": {writeFile(t, "p.json", `{"actions": {"a": {"name": "a", "exec": {"func_type": "JavaFunction"}}}}`), "", "no Python action among its 1 actions"},
	} {
		o := ForRelease04{AgentPlan: c.plan}
		if c.actions != "" {
			o.Actions = writeFile(t, "a.json", c.actions)
		}
		if _, err := o.actionNames(); err == nil || !strings.Contains(err.Error(), c.want) || ExitCode(err) != 2 {
			t.Errorf("%s: %v, exit code %d; want something about %q, 2", name, err, ExitCode(err), c.want)
		}
	}
}

func TestKeyShapes(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		fits string
		says string
	}{
		"numbers":    {[]string{"1", "-7", "0"}, "string, long or int", "100 % are decimal numbers of up to 32 bits"},
		"longs":      {[]string{"1", "4000000000"}, "string or long", "50 % are decimal numbers of up to 64 bits"},
		"no numbers": {[]string{"01", "+1", "1_2", ""}, "string", "100 % are other text"},
		"doubles":    {[]string{"1.5", "-1.0E-5"}, "string or double", "100 % are numbers as a Double prints them"},
		"booleans":   {[]string{"true", "false"}, "string or boolean", "100 % are true or false"},
		"pickled":    {[]string{"+I[[-128, 4]]", "+I[[1]]"}, "row-pickled", "100 % are rows of one byte array"},
		"rows":       {[]string{"+I[a]", "+I[7]"}, "string, row-string, row-long or row-int", "100 % are other rows"},
		"a mix":      {[]string{"1", "+I[a]", "x", "+x"}, "string", "25 % are decimal numbers of up to 32 bits, 25 % are other rows (+I[...]), 50 % are other text"},
	} {
		var shapes, half keyShapes
		for i, key := range c.keys {
			if i%2 == 0 {
				shapes.add([]byte(key))
			} else {
				half.add([]byte(key))
			}
		}
		shapes.merge(&half)
		if got := shapes.fits(); got != c.fits {
			t.Errorf("%s: fits %q, want %q", name, got, c.fits)
		}
		if got := shapes.doubts(keycodec.KeyString); got != (c.fits != "string") {
			t.Errorf("%s: doubts string: %t", name, got)
		}
		if got := shapes.String(); !strings.Contains(got, c.says) || !strings.Contains(got, fmt.Sprintf("of %d records", len(c.keys))) {
			t.Errorf("%s: %s; want something about %q", name, got, c.says)
		}
	}
	var numbers, texts, pickled keyShapes
	numbers.add([]byte("+I[1]"))
	texts.add([]byte("+I[a]"))
	pickled.add([]byte("+I[[1, 2]]"))
	for shapes, want := range map[*keyShapes]bool{&numbers: true, &texts: false, &pickled: true, new(keyShapes): false} {
		if got := shapes.doubts(keycodec.KeyRowString); got != want || shapes.doubts(keycodec.KeyRowLong) {
			t.Errorf("%s: doubts row-string: %t, want %t", shapes, got, want)
		}
	}
	if got := new(keyShapes).String(); got != "no key was found to look at" {
		t.Error(got)
	}
}

// A plan holds what its decisions need, and the same options read the same.
func TestPlannedRelease04(t *testing.T) {
	const old = "30e6b546-354f-3cf6-a60e-7956be205a13"
	o := DefaultPlanOptions()
	o.To, o.KeyType = keycodec.NameFlinkAgents04, "long"
	o.Actions = writeFile(t, "actions.json", fmt.Sprintf(`{%q: "think"}`, old))
	planned, err := o.planned04()
	if err != nil {
		t.Fatal(err)
	}
	want := &planRelease04{KeyType: "long", MaxParallelism: DefaultMaxParallelism, OnIncompatible: rewrite.PolicyFail, Actions: actionNames{old: "think"}}
	if diff := cmp.Diff(want, planned); diff != "" {
		t.Error(diff)
	}
	o.ForRelease04 = planned.options()
	again, err := o.planned04()
	if diff := cmp.Diff(planned, again); err != nil || diff != "" {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	for flag, change := range map[string]func(*planRelease04){
		"":                        func(*planRelease04) {},
		"--key-type":              func(p *planRelease04) { p.KeyType = "int" },
		"--max-parallelism":       func(p *planRelease04) { p.MaxParallelism = 127 },
		"--on-incompatible-value": func(p *planRelease04) { p.OnIncompatible = rewrite.PolicyCopy },
		"--actions or --agent-plan": func(p *planRelease04) {
			p.Actions = actionNames{old: "act"}
		},
	} {
		other := *planned
		change(&other)
		if got := planned.difference(&other); got != flag {
			t.Errorf("differs in %q, want %q", got, flag)
		}
	}
}

// What is remembered of each key of actions that share a name is bounded.
func TestMeetingsMemory(t *testing.T) {
	if !alone(t) {
		return
	}
	const keys = 1_000_000
	m := &meetings{all: true, prints: newFingerprinter(), keys: map[string]bool{}}
	before := heap()
	key := make([]byte, 8)
	d := rewrite.Decision{Parsed: new(keycodec.Key), Key: key}
	r := rewrite.Record{Key: key}
	for i := range keys {
		for b := range key {
			key[b] = byte(i >> (8 * b))
		}
		m.note(&r, &d)
	}
	each := (heap() - before) / keys
	t.Logf("%.1f bytes for each key", each)
	if each < 16 || each > 64 {
		t.Error("want at most 64, and no less than the fingerprint alone")
	}
	if m.seen.size != keys || len(m.keys) != 0 {
		t.Errorf("%d keys, %d of them met", m.seen.size, len(m.keys))
	}
}
