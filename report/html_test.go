package report

import (
	"bytes"
	"testing"
)

func renderHTML(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTML(t *testing.T) {
	for name, r := range sampleReports() {
		golden(t, name+".html", []byte(renderHTML(t, r)))
	}
}
