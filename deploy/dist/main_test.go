package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBill reads the bill of materials of this test's own binary.
func TestBill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var twice [2]string
	for i := range twice {
		if err := writeBill(path, "binary", "v1"); err != nil {
			t.Fatal(err)
		}
		out, err := os.ReadFile(path + ".cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		twice[i] = string(out)
	}
	if twice[0] != twice[1] {
		t.Error("not the same twice")
	}
	var b bill
	decoder := json.NewDecoder(strings.NewReader(twice[0]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.Version != "v1" || len(b.Components) < 1 || b.Components[0].Name != "std" {
		t.Errorf("%+v", b)
	}
	if len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Error("dependencies without components")
	}
}
