package migrate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
)

// onDisk is a run directory without a migration.
func onDisk(folder string) runDir { return Environment{}.runDir(folder) }

// awkward is a file system in which single operations are something else.
type awkward struct {
	osFiles
	create func(pattern string) error // before a temporary file is made
	rename func(to string) error      // before a file gets its name
	wrap   func(f *os.File) openFile  // what is opened or made
}

func (a awkward) CreateTemp(folder, pattern string) (openFile, error) {
	if a.create != nil {
		if err := a.create(pattern); err != nil {
			return nil, err
		}
	}
	return a.opened(a.osFiles.CreateTemp(folder, pattern))
}

func (a awkward) Open(path string) (openFile, error) { return a.opened(a.osFiles.Open(path)) }

func (a awkward) opened(f openFile, err error) (openFile, error) {
	if err != nil || a.wrap == nil {
		return f, err
	}
	return a.wrap(f.(*os.File)), nil
}

func (a awkward) Rename(from, to string) error {
	if a.rename != nil {
		if err := a.rename(to); err != nil {
			return err
		}
	}
	return a.osFiles.Rename(from, to)
}

// A file keeps its content until the new one is whole, and what went wrong while
// the new one was made is what is said.
func TestRunDirWrite(t *testing.T) {
	dir := onDisk(t.TempDir())
	put := func(text string, end error) func(io.Writer) error {
		return func(w io.Writer) error {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			return end
		}
	}
	if err := dir.write("a", put("old", nil)); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	if err := dir.write("a", put(strings.Repeat("new", 100_000), mine)); err != mine {
		t.Errorf("the error of fill became %v", err)
	}
	full := runDir{dir.folder, awkward{wrap: func(f *os.File) openFile { return fullFile{f} }}}
	for name, fill := range map[string]func(io.Writer) error{
		"small": put("new", nil),
		"large": put(strings.Repeat("new", 100_000), nil),
		"both":  func(w io.Writer) error { return errors.Join(put(strings.Repeat("new", 100_000), nil)(w), mine) },
	} {
		err := full.write("a", fill)
		refused(t, err, 1, "cannot write a of the run directory", "no space left")
		if Advice(err) == "" {
			t.Errorf("%s: no advice", name)
		}
	}
	content, err := dir.read("a")
	if err != nil || string(content) != "old" {
		t.Errorf("%q, %v", content, err)
	}
	if left, err := filepath.Glob(dir.path(".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// fullFile is on a full disk.
type fullFile struct{ *os.File }

func (f fullFile) Write(p []byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
}

func (f fullFile) WriteString(string) (int, error) { return f.Write(nil) }

// Some file systems know no permissions, and some cannot sync a folder. There is
// nothing more to be had there, so that is no failure.
func TestRunDirModestFileSystem(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	dir := runDir{folder, awkward{wrap: func(f *os.File) openFile { return modestFile{f} }}}
	if err := dir.create(); err != nil {
		t.Fatal(err)
	}
	if err := dir.write("a", func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }); err != nil {
		t.Fatal(err)
	}
	if content, err := dir.read("a"); err != nil || string(content) != "x" {
		t.Errorf("%q, %v", content, err)
	}
}

type modestFile struct{ *os.File }

func (f modestFile) Chmod(fs.FileMode) error {
	return &fs.PathError{Op: "chmod", Path: f.Name(), Err: syscall.EPERM}
}

func (f modestFile) Sync() error {
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return errors.Join(err, &fs.PathError{Op: "sync", Path: f.Name(), Err: syscall.EINVAL})
	}
	return f.File.Sync()
}

// What plan left behind is swept away. What may be in use, or is not ours, stays.
func TestRunDirSweep(t *testing.T) {
	dir := onDisk(t.TempDir())
	stay := []string{".apply.json-1", ".git-4", ".keys", ".plan.json", ".rehearse.json-3", ".verify.json-2", "keys-5", "plan.json-6", "quarantine.jsonl"}
	for _, name := range append([]string{".keys-1", ".lines-23", ".probe-4", ".plan.json-5", ".quarantine.jsonl-6", ".unparseable.jsonl.before-extend-7", ".report.json-8"}, stay...) {
		if err := os.WriteFile(dir.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir.sweep(Environment{Logf: t.Errorf})
	var left []string
	entries, err := os.ReadDir(dir.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if diff := cmp.Diff(stay, left); diff != "" {
		t.Error(diff)
	}
}

// A run directory may be a link. Files in it that are links are replaced, and
// what they lead to stays as it is.
func TestRunDirLinks(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil)
	elsewhere := t.TempDir()
	published := filepath.Join(t.TempDir(), "published.html")
	for link, to := range map[string]string{m.run.RunDir: elsewhere, filepath.Join(elsewhere, reportHTMLName): published} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(published, []byte("of last year"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.planAndApply(t)
	m.verify(t)
	m.check(t)
	if content, err := os.ReadFile(published); err != nil || string(content) != "of last year" {
		t.Errorf("%q, %v", content, err)
	}
	if content, err := os.ReadFile(filepath.Join(elsewhere, reportHTMLName)); err != nil || !strings.Contains(string(content), "<html") {
		t.Errorf("%q, %v", content, err)
	}
}

// A link that leads nowhere hides something: nobody knows what.
func TestRunDirDanglingLinks(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil)
	nowhere := filepath.Join(t.TempDir(), "not mounted")
	if err := os.Symlink(nowhere, m.run.RunDir); err != nil {
		t.Fatal(err)
	}
	_, err := Plan(testcluster.Context(t), m.options, m.env)
	refused(t, err, 2, "cannot make --run-dir")
	if err := errors.Join(os.Remove(m.run.RunDir), os.Mkdir(m.run.RunDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(m.run.RunDir, planFileName)
	if err := os.Symlink(nowhere, plan); err != nil {
		t.Fatal(err)
	}
	_, err = Plan(testcluster.Context(t), m.options, m.env)
	refused(t, err, 2, "already holds a plan")
	_, err = Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 1, "cannot read plan.json of the run directory")
	if to, err := os.Readlink(plan); err != nil || to != nowhere {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := os.Remove(plan); err != nil {
		t.Fatal(err)
	}
	m.planAndApply(t)
	evidence := filepath.Join(m.run.RunDir, applyFileName)
	if err := errors.Join(os.Remove(evidence), os.Symlink(nowhere, evidence)); err != nil {
		t.Fatal(err)
	}
	_, err = Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 4, "cannot read the evidence of the apply before")
}

// A difference is said although it cannot be written down.
func TestDifferenceWithoutEvidence(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil).planAndApply(t)
	for partition, end := range m.ends(t, m.target) {
		m.cluster.DeleteRecords(t, m.target, int32(partition), end)
	}
	m.env.files = awkward{create: func(pattern string) error {
		if strings.HasPrefix(pattern, ".probe") {
			return nil
		}
		return syscall.ENOSPC
	}}
	v, err := Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 5, "is not what the plan demands", "no space left")
	if v == nil || v.Equal || v.Total == 0 {
		t.Errorf("the result: %+v", v)
	}
	marker := filepath.Join(t.TempDir(), "marker.json")
	if err := os.WriteFile(marker, []byte(`{"offsets": {"0": 0, "1": 0, "2": 0}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Rehearse(testcluster.Context(t), RehearseOptions{RunOptions: m.run, Runtimes: []string{"0.3"}, Markers: []string{marker}}, m.env)
	refused(t, err, 5, "no space left")
	if r == nil || r.Passed {
		t.Errorf("the result: %+v", r)
	}
}

// A run directory that cannot be written is noticed before anything is read or
// written for nothing.
func TestRunDirNotWritable(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil)
	m.plan(t)
	m.env.files = awkward{create: func(string) error { return syscall.EROFS }}
	_, err := Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 2, "cannot write to --run-dir")
	if err := m.tryDeleteTopic(t, m.target); err == nil {
		t.Error("the target was made all the same")
	}
	_, err = Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 2, "cannot write to --run-dir")
}

// The folder vanishes while apply runs. It says so and makes none anew.
func TestRunDirVanishes(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil)
	m.plan(t)
	saved := filesOf(t, m.run.RunDir)
	m.env.files = awkward{create: func(pattern string) error {
		if strings.HasPrefix(pattern, "."+applyFileName) {
			return os.RemoveAll(m.run.RunDir)
		}
		return nil
	}}
	_, err := Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 1, "cannot write apply.json of the run directory")
	if _, err := os.Stat(m.run.RunDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
	m.env.files = nil
	putFiles(t, m.run.RunDir, saved)
	m.apply(t)
	m.verify(t)
}

// An extension that is killed when all but plan.json is written leaves the plan
// with its own report. The next one counts from there, nothing twice.
func TestExtendKilledBeforePlan(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil).planAndApply(t)
	m.write(t, m.source, []reader.Record{
		{Timestamp: 1, Key: []byte("a_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13")},
		{Timestamp: 2, Key: []byte("a second bad key")},
	})
	m.env.files = awkward{rename: func(to string) error {
		if filepath.Base(to) == planFileName {
			return errDead
		}
		return nil
	}}
	if _, err := m.extend(t); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	m.env.files = nil
	m.run.AllowLiveSource = true // for it has two records more than the plan
	m.apply(t)
	m.run.AllowLiveSource = false
	again, err := m.extend(t)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.env.runDir(m.run.RunDir).readPlan()
	if err != nil {
		t.Fatal(err)
	}
	stored, isCopy, err := m.env.runDir(m.run.RunDir).readReport(p)
	if err != nil || isCopy {
		t.Fatal(isCopy, err)
	}
	want := p.Captures[0].Records + 2
	if again.Counts.Records != want || stored.Counts.Records != want {
		t.Errorf("%d and %d records in the reports, want %d", again.Counts.Records, stored.Counts.Records, want)
	}
	m.apply(t)
	m.verify(t)
}
