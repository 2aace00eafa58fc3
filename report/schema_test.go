package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checker checks a document against the part of JSON Schema that our schemas
// use. A keyword that it does not know is an error, lest a rule be written that
// nothing checks.
type checker struct{ root map[string]any }

func (c checker) check(path string, schema map[string]any, v any) (errs []string) {
	fail := func(format string, args ...any) { errs = append(errs, path+": "+fmt.Sprintf(format, args...)) }
	for word, rule := range schema {
		switch word {
		case "$schema", "$id", "$defs", "title", "description", "format":
		case "$ref":
			name, ok := strings.CutPrefix(rule.(string), "#/$defs/")
			def, found := c.root["$defs"].(map[string]any)[name].(map[string]any)
			if !ok || !found {
				fail("no definition %v", rule)
				break
			}
			errs = append(errs, c.check(path, def, v)...)
		case "type":
			types, many := rule.([]any)
			if !many {
				types = []any{rule}
			}
			if !slices.ContainsFunc(types, func(t any) bool { return isType(t.(string), v) }) {
				fail("%v is no %v", v, rule)
			}
		case "enum":
			if !slices.ContainsFunc(rule.([]any), func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(v) }) {
				fail("%v is none of %v", v, rule)
			}
		case "required":
			obj, _ := v.(map[string]any)
			for _, name := range rule.([]any) {
				if _, ok := obj[name.(string)]; !ok {
					fail("%v is missing", name)
				}
			}
		case "properties":
			obj, _ := v.(map[string]any)
			for name, sub := range rule.(map[string]any) {
				if x, ok := obj[name]; ok {
					errs = append(errs, c.check(path+"."+name, sub.(map[string]any), x)...)
				}
			}
		case "additionalProperties":
			if rule != false {
				fail("additionalProperties other than false is not checked")
			}
			obj, _ := v.(map[string]any)
			for name := range obj {
				if _, ok := schema["properties"].(map[string]any)[name]; !ok {
					fail("%s is not in the schema", name)
				}
			}
		case "items":
			list, _ := v.([]any)
			for i, x := range list {
				errs = append(errs, c.check(fmt.Sprintf("%s[%d]", path, i), rule.(map[string]any), x)...)
			}
		default:
			fail("keyword %s is not checked", word)
		}
	}
	return errs
}

func isType(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case json.Number:
		f, err := v.Float64()
		return name == "number" || name == "integer" && err == nil && f == math.Trunc(f)
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

func decode(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func schemaOf(t *testing.T, name string) map[string]any {
	t.Helper()
	b, err := Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, b)
}

// TestSchema checks what is really written against the schemas.
func TestSchema(t *testing.T) {
	docs := map[string][]any{
		"apply":    {sampleApply(), &Apply{Schema: SchemaVersion}},
		"verify":   {sampleVerify(), differentVerify()},
		"rehearse": {sampleRehearse(), failedRehearse()},
		"convert":  {&Convert{Schema: SchemaVersion, Tool: "rekey v1", From: "legacy", To: "escaped", Lines: 3, Converted: 2, Unparseable: 1}},
		"repair-run": {&RepairRun{Schema: SchemaVersion, Tool: "rekey v1", PlanID: "p", File: "repairs.jsonl", Added: 1, Lines: 2,
			Replaced: []Replaced{{Key: "k", Was: "copy", Now: "drop"}}, Remaining: []ReasonCount{{Reason: "foreign", Meaning: "m", Keys: 1, Records: 2}}, Next: []string{"rekey plan"}}},
		"prune":  {samplePrune("user_1", 7), samplePrune("", 0)},
		"report": {decidedReport()},
	}
	for _, r := range sampleReports() {
		docs["report"] = append(docs["report"], r)
		for _, b := range r.Examples {
			docs["bad-key"] = append(docs["bad-key"], b)
			for _, d := range []string{"rewrite", "drop", "copy"} {
				if rep, err := RepairFor(b, d); err == nil {
					docs["repair"] = append(docs["repair"], rep)
				}
			}
		}
	}
	names := SchemaNames()
	if len(names) != len(docs) {
		t.Fatalf("schemas %v, documents for %d", names, len(docs))
	}
	for _, name := range names {
		s := schemaOf(t, name)
		if len(docs[name]) == 0 {
			t.Errorf("%s: nothing to check", name)
		}
		for _, d := range docs[name] {
			var b bytes.Buffer
			if err := WriteJSON(&b, d); err != nil {
				t.Fatal(err)
			}
			for _, e := range (checker{s}).check(name, s, decode(t, b.Bytes())) {
				t.Error(e)
			}
		}
	}
}

// TestSchemaRefuses makes sure that the checker checks.
func TestSchemaRefuses(t *testing.T) {
	s := schemaOf(t, "bad-key")
	line := func(change func(map[string]any)) map[string]any {
		var b bytes.Buffer
		if err := WriteBadKey(&b, demoReport().Examples[2]); err != nil {
			t.Fatal(err)
		}
		v := decode(t, b.Bytes())
		change(v)
		return v
	}
	for name, change := range map[string]func(map[string]any){
		"missing": func(v map[string]any) { delete(v, "reason") },
		"unknown": func(v map[string]any) { v["extra"] = "x" },
		"type":    func(v map[string]any) { v["records"] = "12" },
		"enum":    func(v map[string]any) { v["decision"] = "perhaps" },
		"ref": func(v map[string]any) {
			v["first"] = map[string]any{"partition": json.Number("1.5"), "offset": json.Number("1")}
		},
		"null": func(v map[string]any) { v["first"] = nil },
	} {
		if errs := (checker{s}).check("", s, line(change)); len(errs) == 0 {
			t.Errorf("%s: not refused", name)
		}
	}
	if errs := (checker{s}).check("", s, line(func(map[string]any) {})); len(errs) != 0 {
		t.Errorf("unchanged: %v", errs)
	}
}

// TestSchemaIsComplete compares the schemas with the Go types: every field, in
// both directions, and which of them are required.
func TestSchemaIsComplete(t *testing.T) {
	for name, typ := range map[string]reflect.Type{
		"report": reflect.TypeFor[Report](), "apply": reflect.TypeFor[Apply](), "verify": reflect.TypeFor[Verify](),
		"rehearse": reflect.TypeFor[Rehearse](),
		"bad-key":  reflect.TypeFor[BadKey](), "repair": reflect.TypeFor[Repair](), "prune": reflect.TypeFor[Prune](),
	} {
		s := schemaOf(t, name)
		compareType(t, name, s, s, typ, map[reflect.Type]bool{})
	}
}

func compareType(t *testing.T, path string, root, s map[string]any, typ reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	if typ == timeType {
		return
	}
	switch typ.Kind() {
	case reflect.Pointer:
		compareType(t, path, root, s, typ.Elem(), seen)
		return
	case reflect.Slice:
		items, ok := s["items"].(map[string]any)
		if !ok {
			t.Errorf("%s: no items", path)
			return
		}
		compareType(t, path+"[]", root, items, typ.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if ref, ok := s["$ref"].(string); ok {
		s, _ = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if seen[typ] {
		return
	}
	seen[typ] = true
	props, _ := s["properties"].(map[string]any)
	var want, required []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, opt, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
		if opt == "" {
			required = append(required, name)
		}
		if sub, ok := props[name].(map[string]any); ok {
			compareType(t, path+"."+name, root, sub, f.Type, seen)
		}
	}
	var got, gotRequired []string
	for name := range props {
		got = append(got, name)
	}
	for _, name := range s["required"].([]any) {
		gotRequired = append(gotRequired, name.(string))
	}
	for _, l := range [][]string{want, got, required, gotRequired} {
		slices.Sort(l)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: properties (-type +schema):\n%s", path, diff)
	}
	if diff := cmp.Diff(required, gotRequired); diff != "" {
		t.Errorf("%s: required (-type +schema):\n%s", path, diff)
	}
	if s["additionalProperties"] != false {
		t.Errorf("%s: additionalProperties is not false", path)
	}
}
