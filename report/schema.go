package report

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed schema/*.schema.json
var schemaFiles embed.FS

const schemaSuffix = ".schema.json"

// Schema is the JSON Schema (draft 2020-12) of a document: "report", "apply",
// "verify", or of a line: "bad-key", "repair".
func Schema(name string) ([]byte, error) {
	b, err := schemaFiles.ReadFile("schema/" + name + schemaSuffix)
	if err != nil {
		return nil, fmt.Errorf("no schema %s; there are %s", Printable([]byte(name)), strings.Join(SchemaNames(), ", "))
	}
	return b, nil
}

// SchemaNames lists the names that Schema takes.
func SchemaNames() []string {
	files, _ := fs.Glob(schemaFiles, "schema/*"+schemaSuffix) // fails for a bad pattern only
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "schema/"), schemaSuffix)
	}
	return files
}
