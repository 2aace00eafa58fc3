package report

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs holds docs/report-schema.md to what the code says.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../docs/report-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, code := range ReasonCodes() {
		if row := fmt.Sprintf("| `%s` | %s |\n", code, Meaning(code)); !strings.Contains(doc, row) {
			t.Errorf("missing or different: %s", row)
		}
	}
	for _, name := range SchemaNames() {
		if !strings.Contains(doc, "schema/"+name+".schema.json") {
			t.Errorf("schema %s is not mentioned", name)
		}
	}
	line := doc[strings.LastIndex(doc, "    {")+4:]
	r, err := RepairFor(demoReport().Examples[6], "drop")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.Line(); err != nil || strings.TrimSpace(line) != want {
		t.Errorf("the example is %s, want %s, %v", line, want, err)
	}
}
