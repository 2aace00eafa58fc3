package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Results are what one call of the bench measured: a file of bench/results.
type Results struct {
	Kind     string            `json:"kind"` // comparison, growth, memory
	Command  string            `json:"command"`
	Date     string            `json:"date"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Tables   []Table           `json:"tables"`
}

// Machine is what the figures depend on.
type Machine struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	MemoryMiB int64  `json:"memory_mib"`
	System    string `json:"system"`
	// Load is the load average of the minute before: other work on the machine.
	Load float64 `json:"load_before"`
}

// Table is what was measured on one topic.
type Table struct {
	Broker       string        `json:"broker"`
	Records      int64         `json:"records"`
	Partitions   int           `json:"partitions"`
	Codec        string        `json:"codec"`
	Size         int           `json:"record_bytes"`      // as asked for
	MeanSize     int64         `json:"mean_record_bytes"` // keys and values as they came out
	Skew         float64       `json:"zipf_exponent"`     // of business keys; 0: all alike
	BusinessKeys int           `json:"business_keys"`
	StateKeys    int           `json:"state_keys"`
	Series       string        `json:"series,omitempty"` // growth: what varies
	X            float64       `json:"x,omitempty"`      // growth: its value
	Measurements []Measurement `json:"measurements"`
}

// Measurement is one turn of one contestant.
type Measurement struct {
	Contestant string  `json:"contestant"`
	Run        int     `json:"run"`
	Seconds    float64 `json:"seconds"`               // the whole process
	Own        float64 `json:"own_seconds,omitempty"` // without start-up and preparations, where that differs
	CPU        float64 `json:"cpu_seconds"`
	PeakKiB    int64   `json:"peak_kib"`
	Failed     string  `json:"failed,omitempty"` // why MirrorMaker did not get to the end
}

func newTable(l *lab, s *seeded) Table {
	return Table{Broker: l.brokerName(), Records: int64(s.summary.Records), Partitions: int(s.Partitions), Codec: s.Codec.String(),
		Size: s.RecordBytes, MeanSize: s.summary.Bytes / max(1, int64(s.summary.Records)), Skew: s.Skew, BusinessKeys: s.summary.BusinessKeys, StateKeys: s.summary.StateKeys}
}

func newResults(ctx context.Context, kind string, args []string) *Results {
	return &Results{Kind: kind, Command: strings.TrimSpace("go run . " + strings.Join(args, " ")), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: thisMachine(), Versions: versions(ctx)}
}

// save writes the results after each table, so that a long series that is
// interrupted leaves what it has.
func (r *Results) save(path string) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, append(compactMeasurements(content), '\n'), 0o644)
}

var measurementLines = regexp.MustCompile(`\{\n\s+"contestant": [^}]*\}`)

// compactMeasurements puts each measurement on a line of its own, so that
// results read well in a review.
func compactMeasurements(content []byte) []byte {
	return measurementLines.ReplaceAllFunc(content, func(m []byte) []byte {
		return append(append([]byte("{"), bytes.Join(bytes.Fields(m[1:len(m)-1]), []byte(" "))...), '}')
	})
}

func loadResults(path string) (*Results, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// thisMachine asks Linux; elsewhere the fields that are not known stay empty.
func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if content, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = after(string(content), "model name")
	}
	if content, err := os.ReadFile("/proc/meminfo"); err == nil {
		if kib, err := strconv.ParseInt(strings.TrimSuffix(after(string(content), "MemTotal"), " kB"), 10, 64); err == nil {
			m.MemoryMiB = kib >> 10
		}
	}
	if content, err := os.ReadFile("/proc/loadavg"); err == nil {
		if load, err := strconv.ParseFloat(strings.Fields(string(content))[0], 64); err == nil {
			m.Load = load
		}
	}
	return m
}

// after is what follows a name and a colon on the first line that begins with it.
func after(text, name string) string {
	_, rest, _ := strings.Cut("\n"+text, "\n"+name)
	line, _, _ := strings.Cut(rest, "\n")
	_, value, _ := strings.Cut(line, ":")
	return strings.TrimSpace(value)
}

func versions(ctx context.Context) map[string]string {
	v := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	if output, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		v["rekey"] = strings.TrimSpace(string(output))
	}
	if output, err := exec.CommandContext(ctx, "kcat", "-V").Output(); err == nil {
		if found := kcatVersion.FindSubmatch(output); found != nil {
			v["kcat"] = string(found[1])
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				v["franz-go"] = module.Version
			}
		}
	}
	v["MirrorMaker"] = mirrorVersion
	return v
}

var kcatVersion = regexp.MustCompile(`Version ([0-9.]+)`)
