package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
	"rekey/report"
	"rekey/rewrite"
)

// Every operation on a file of a run directory may fail, or be the last one of
// its process. The tests below let that happen to one of them, and then run the
// same command again: for every operation with REKEY_TORTURE=1, else for a few
// that REKEY_TORTURE_SEED chooses.

// fate is what becomes of an operation.
type fate int

const (
	fails        fate = iota // and is not done; a write is done by half
	failsDone                // but is done all the same
	killed                   // and none after it is done either
	losesNames               // the same, and the machine loses power: names that were not synced are as before
	losesContent             // the same, but what is lost is the content of files that were not synced
	fates
)

func (f fate) String() string {
	return []string{"fails", "fails although it is done", "killed", "power cut, names lost", "power cut, content lost"}[f]
}

// hazard is a file system with one operation that meets its fate. It counts all.
type hazard struct {
	osFiles
	at   int // from 1
	fate fate

	mu       sync.Mutex
	count    int
	met      string              // the operation
	undo     map[string][]func() // by folder: how to take back what was not synced, oldest first
	unsynced map[string]bool     // files
}

// errDead is what a process gets that is no more.
var errDead = errors.New("the process was killed")

// step says whether an operation is done and what it returns.
func (h *hazard) step(operation, path string, fault error) (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	switch {
	case h.at == 0 || h.count < h.at:
		return true, nil
	case h.count > h.at && h.fate >= killed:
		return false, errDead
	case h.count > h.at:
		return true, nil
	}
	h.met = fmt.Sprintf("%s %s, operation %d", operation, filepath.Base(path), h.count)
	if h.fate >= killed {
		return false, errDead
	}
	return h.fate == failsDone, &fs.PathError{Op: operation, Path: path, Err: fault}
}

func (h *hazard) Lstat(path string) (fs.FileInfo, error) {
	if _, err := h.step("lstat", path, syscall.EIO); err != nil {
		return nil, err
	}
	return h.osFiles.Lstat(path)
}

func (h *hazard) Stat(path string) (fs.FileInfo, error) {
	if _, err := h.step("stat", path, syscall.EIO); err != nil {
		return nil, err
	}
	return h.osFiles.Stat(path)
}

func (h *hazard) ReadDir(path string) ([]fs.DirEntry, error) {
	if _, err := h.step("readdir", path, syscall.EIO); err != nil {
		return nil, err
	}
	return h.osFiles.ReadDir(path)
}

func (h *hazard) Mkdir(path string, mode fs.FileMode) error {
	return h.change("mkdir", path, syscall.ENOSPC, func() error { return h.osFiles.Mkdir(path, mode) })
}

func (h *hazard) Remove(path string) error {
	return h.change("remove", path, syscall.EROFS, func() error { return h.osFiles.Remove(path) })
}

func (h *hazard) Rename(from, to string) error {
	return h.change("rename", to, syscall.EIO, func() error {
		h.mu.Lock()
		h.unsynced[to] = h.unsynced[from]
		h.mu.Unlock()
		return h.osFiles.Rename(from, to)
	})
}

// change does something to a name, in a way that a power cut can take back.
func (h *hazard) change(operation, path string, fault error, do func() error) error {
	done, err := h.step(operation, path, fault)
	if !done {
		return err
	}
	before, readErr := os.ReadFile(path)
	if doErr := do(); doErr != nil {
		return doErr
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	folder := filepath.Dir(path)
	h.undo[folder] = append(h.undo[folder], func() {
		os.RemoveAll(path)
		if readErr == nil {
			os.WriteFile(path, before, 0o600)
		}
	})
	return err
}

func (h *hazard) Open(path string) (openFile, error) {
	if _, err := h.step("open", path, syscall.EIO); err != nil {
		return nil, err
	}
	return h.opened(h.osFiles.Open(path))
}

func (h *hazard) CreateTemp(folder, pattern string) (openFile, error) {
	// Under the name that it will have, nobody else makes one.
	done, err := h.step("create", filepath.Join(folder, pattern), syscall.ENOSPC)
	if !done {
		return nil, err
	}
	created, createErr := h.opened(h.osFiles.CreateTemp(folder, pattern))
	if createErr != nil {
		return nil, createErr
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := created.Name()
	h.unsynced[name] = true
	h.undo[folder] = append(h.undo[folder], func() { os.RemoveAll(name) })
	if err != nil {
		return nil, errors.Join(err, created.(*hazardFile).file.Close())
	}
	return created, nil
}

func (h *hazard) opened(f openFile, err error) (openFile, error) {
	if err != nil {
		return nil, err
	}
	return &hazardFile{f.(*os.File), h}, nil
}

// powerCut loses what its fate says.
func (h *hazard) powerCut() {
	switch h.fate {
	case losesNames:
		for _, undo := range h.undo {
			for _, one := range slices.Backward(undo) {
				one()
			}
		}
	case losesContent:
		for path, lost := range h.unsynced {
			if lost {
				os.Truncate(path, 0) // it may be gone
			}
		}
	}
}

// hazardFile has no more methods than openFile: a shortcut of os.File would go
// past those that fail.
type hazardFile struct {
	file   *os.File
	hazard *hazard
}

func (f *hazardFile) Name() string { return f.file.Name() }

func (f *hazardFile) Read(p []byte) (int, error) {
	if _, err := f.hazard.step("read", f.Name(), syscall.EIO); err != nil {
		return 0, err
	}
	return f.file.Read(p)
}

func (f *hazardFile) ReadAt(p []byte, at int64) (int, error) {
	if _, err := f.hazard.step("read", f.Name(), syscall.EIO); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, at)
}

func (f *hazardFile) Write(p []byte) (int, error) {
	done, err := f.hazard.step("write", f.Name(), syscall.ENOSPC)
	if err == nil {
		return f.file.Write(p)
	}
	if !done {
		p = p[:len(p)/2]
	}
	n, _ := f.file.Write(p)
	return n, err
}

func (f *hazardFile) Seek(offset int64, whence int) (int64, error) {
	if _, err := f.hazard.step("seek", f.Name(), syscall.EIO); err != nil {
		return 0, err
	}
	return f.file.Seek(offset, whence)
}

func (f *hazardFile) Chmod(mode fs.FileMode) error {
	done, err := f.hazard.step("chmod", f.Name(), syscall.EIO)
	if !done {
		return err
	}
	return errors.Join(err, f.file.Chmod(mode))
}

func (f *hazardFile) Sync() error {
	done, err := f.hazard.step("fsync", f.Name(), syscall.EIO)
	if !done {
		return err
	}
	f.hazard.mu.Lock()
	defer f.hazard.mu.Unlock()
	delete(f.hazard.unsynced, f.Name())
	delete(f.hazard.undo, f.Name()) // if it is a folder
	return errors.Join(err, f.file.Sync())
}

// Close closes the file whatever it says: so does the system, also for a
// process that was killed.
func (f *hazardFile) Close() error {
	_, err := f.hazard.step("close", f.Name(), syscall.EIO)
	return errors.Join(err, f.file.Close())
}

// filesOf are the files of a folder by name, without temporary ones.
func filesOf(t testing.TB, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(content)
	}
	return files
}

// putFiles makes a folder hold exactly these files; none: it is not there.
func putFiles(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// attackedCommand is a command whose file operations meet their fates.
type attackedCommand struct {
	name   string
	m      *migration
	run    func(Environment) error
	reset  func() // undoes what a run did outside of the run directory; may be nil
	sweeps bool   // removes leftovers of a run before it
	// Evidence may tell of the runs before it. Then alike says whether it is as
	// good as that of a run without faults; may be nil.
	alike func(name, got, want string) bool

	before, after map[string]string // the run directory without any fault
}

// fileTrial is one operation of a command that meets its fate. One past the last
// operation, power is cut when all is done.
type fileTrial struct {
	at   int
	fate fate
}

// fileTrials are all of them, or a few.
func fileTrials(operations int, r *rand.Rand) []fileTrial {
	var all []fileTrial
	for f := range fates {
		for at := 1; at <= operations+1; at++ {
			all = append(all, fileTrial{at, f})
		}
	}
	if os.Getenv("REKEY_TORTURE") == "" {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(len(all), 25)]
	}
	return all
}

// attackFiles demands of each trial: no file is half-written, success is what it
// says, and the same command then succeeds and leaves what it would have left
// without the fault.
func attackFiles(t *testing.T, a attackedCommand) {
	seed := tortureSeed(t)
	a.before = filesOf(t, a.m.run.RunDir)
	counted, err := a.try(t, fileTrial{})
	if err != nil {
		t.Fatal("without any fault:", err)
	}
	a.after = filesOf(t, a.m.run.RunDir)
	if maps.Equal(a.before, a.after) {
		t.Fatal("the command changes nothing")
	}
	result := torture.Result{Attack: "files of " + a.name + ": each operation fails or is the last", Seed: seed, Moments: map[string]int{}}
	defer func() { saveTorture(t, result) }()
	for _, trial := range fileTrials(counted.count, rand.New(rand.NewPCG(seed, 0))) {
		h, err := a.try(t, trial)
		result.Runs++
		if h.met != "" {
			result.Hits++
			result.Moments[trial.fate.String()]++
		} else {
			result.Late++
		}
		what := fmt.Sprintf("%s %s: %s", h.met, trial.fate, cmp.Or(fmt.Sprint(err), "success"))
		switch {
		case err == nil && !a.done(t, what):
			result.FalseSuccess++
		case !a.whole(t, what):
			result.Failures++
		case err != nil && trial.fate < killed && Advice(err) == "":
			t.Errorf("%s: no advice", what)
		case !a.again(t, what):
			result.Refusals++
		}
		if t.Failed() {
			t.FailNow() // the next ones would say the same
		}
	}
}

// try runs the command from the same beginning with one fault.
func (a *attackedCommand) try(t *testing.T, trial fileTrial) (*hazard, error) {
	t.Helper()
	folder := a.m.run.RunDir
	if a.reset != nil {
		a.reset()
	}
	if len(a.before) == 0 {
		putFiles(t, filepath.Dir(filepath.Dir(folder)), nil) // folders above it are missing, too
	}
	putFiles(t, folder, a.before)
	h := &hazard{at: trial.at, fate: trial.fate, undo: map[string][]func(){}, unsynced: map[string]bool{}}
	env := a.m.env
	env.files = h
	err := a.run(env)
	h.powerCut()
	return h, err
}

func (a *attackedCommand) same(name, got string) bool {
	want, known := a.after[name]
	return known && (got == want || a.alike != nil && a.alike(name, got, want))
}

// whole says whether each file is as before or as it is to be, and whether the
// plan and what belongs to it fit together.
func (a *attackedCommand) whole(t *testing.T, what string) bool {
	t.Helper()
	files := filesOf(t, a.m.run.RunDir)
	ok := true
	for name, content := range files {
		old, known := a.before[strings.TrimSuffix(name, keptName(""))]
		if !(known && content == old) && !a.same(name, content) {
			t.Errorf("%s: %s is neither as before nor as it is to be:\n%.500s", what, name, content)
			ok = false
		}
	}
	for name := range a.before {
		if _, there := files[name]; !there {
			t.Errorf("%s: %s is gone", what, name)
			ok = false
		}
	}
	if _, planned := files[planFileName]; planned {
		d := onDisk(a.m.run.RunDir)
		p, err := d.readPlan()
		if err == nil {
			err = p.checkFiles(d)
		}
		if err == nil {
			_, _, err = d.readReport(p)
		}
		if err != nil {
			t.Errorf("%s: the plan that is there: %v", what, err)
			ok = false
		}
	}
	return ok
}

// done says whether all is there that a success promises.
func (a *attackedCommand) done(t *testing.T, what string) bool {
	t.Helper()
	files := filesOf(t, a.m.run.RunDir)
	ok := true
	for name := range a.after {
		if !a.same(name, files[name]) {
			t.Errorf("%s: %s is not as it is to be:\n%.500s", what, name, files[name])
			ok = false
		}
	}
	for name := range files {
		if _, want := a.after[name]; !want && !strings.HasSuffix(name, keptName("")) {
			t.Errorf("%s: there is a file %s", what, name)
			ok = false
		}
	}
	return ok
}

// again runs the command once more, without a fault. One that has made a plan
// already says so and does not make another.
func (a *attackedCommand) again(t *testing.T, what string) bool {
	t.Helper()
	_, had := a.before[planFileName]
	if has, err := onDisk(a.m.run.RunDir).has(planFileName); err != nil || has && !had {
		return a.done(t, what+": the plan is there") && err == nil
	}
	if err := a.run(a.m.env); err != nil {
		t.Errorf("%s: run again: %v", what, err)
		return false
	}
	if left, err := filepath.Glob(filepath.Join(a.m.run.RunDir, ".*")); err != nil || a.sweeps && len(left) > 0 {
		t.Errorf("%s: run again, left behind: %v, %v", what, left, err)
		return false
	}
	return a.done(t, what+": run again")
}

// tortureSeed is REKEY_TORTURE_SEED, or a new one.
func tortureSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1 << 32)
	if text := os.Getenv("REKEY_TORTURE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("REKEY_TORTURE_SEED=%q: want a number", text)
		}
	}
	t.Logf("REKEY_TORTURE_SEED=%d", seed)
	return seed
}

// saveTorture adds a result to the file that REKEY_TORTURE_OUT names.
func saveTorture(t *testing.T, r torture.Result) {
	t.Helper()
	t.Logf("%s: %d runs, %d hits, %d late, %d refusals, %d failures, %d false successes; %v", r.Attack, r.Runs, r.Hits, r.Late, r.Refusals, r.Failures, r.FalseSuccess, r.Moments)
	path := os.Getenv("REKEY_TORTURE_OUT")
	if path == "" {
		return
	}
	version, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		version = []byte("unknown")
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	broker := regexp.MustCompile(`franz-go/pkg/kfake v\S*-(\w+)`).FindSubmatch(module)
	r.Broker = fmt.Sprintf("embedded, kfake %s", broker[1])
	r.Version, r.Go, r.Date = strings.TrimSpace(string(version)), runtime.Version(), time.Now().UTC().Format(time.DateOnly)
	if err := torture.Save(path, r); err != nil {
		t.Error(err)
	}
}

// atRest is a migration whose clock stands still, so that a command writes the
// same files each time, in a folder with an awkward name.
func atRest(t *testing.T, change func(*PlanOptions)) *migration {
	t.Helper()
	testcluster.RequireFake(t, "the files are the same with every broker")
	m := newMigration(t, testcluster.Start(t), smallTopic(), change)
	m.options.RunDir = filepath.Join(t.TempDir(), "above", "söme where", "rün 1 \"'$x\"")
	m.run.RunDir = m.options.RunDir
	now := time.Now()
	m.env.Now = func() time.Time { return now }
	m.env.Logf = func(string, ...any) {}
	return m
}

func TestTortureFilesPlan(t *testing.T) {
	m := atRest(t, nil)
	attackFiles(t, attackedCommand{name: "plan", m: m, sweeps: true, run: func(env Environment) error {
		_, err := Plan(testcluster.Context(t), m.options, env)
		return err
	}})
	m.apply(t)
	m.verify(t)
	m.check(t)
}

func TestTortureFilesExtend(t *testing.T) {
	m := atRest(t, nil).planAndApply(t)
	m.write(t, m.source, []reader.Record{
		{Timestamp: 1, Key: []byte("a_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13")},
		{Timestamp: 2, Key: []byte("a second bad key")},
	})
	extend := m.options
	extend.Extend = true
	attackFiles(t, attackedCommand{name: "plan --extend", m: m, sweeps: true, run: func(env Environment) error {
		_, err := Plan(testcluster.Context(t), extend, env)
		return err
	}})
	m.apply(t)
	m.verify(t)
}

// The evidence of an apply tells what was on the target already.
func TestTortureFilesApply(t *testing.T) {
	m := atRest(t, nil)
	m.plan(t)
	attackFiles(t, attackedCommand{name: "apply", m: m,
		run: func(env Environment) error {
			if _, err := Apply(testcluster.Context(t), m.run, env); err != nil || env.files != nil {
				return err
			}
			defer os.Remove(filepath.Join(m.run.RunDir, verifyFileName)) // of no interest
			_, err := Verify(testcluster.Context(t), m.run, env)
			return err
		},
		reset: func() {
			if err := m.tryDeleteTopic(t, m.target); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
				t.Fatal(err)
			}
		},
		alike: func(name, got, _ string) bool {
			if name != applyFileName {
				return false
			}
			_, err := report.ReadApply(strings.NewReader(got))
			return err == nil
		}})
}

func TestTortureFilesVerify(t *testing.T) {
	m := atRest(t, nil).planAndApply(t)
	attackFiles(t, attackedCommand{name: "verify", m: m, run: func(env Environment) error {
		_, err := Verify(testcluster.Context(t), m.run, env)
		return err
	}})
}

func TestTortureFilesRehearse(t *testing.T) {
	m := atRest(t, nil).planAndApply(t)
	attackFiles(t, attackedCommand{name: "rehearse", m: m, run: func(env Environment) error {
		_, err := Rehearse(testcluster.Context(t), RehearseOptions{RunOptions: m.run, Runtimes: []string{"0.3"}, Markers: []string{MarkerAtEnd}}, env)
		return err
	}})
}

func TestTortureFilesRepair(t *testing.T) {
	m := atRest(t, func(o *PlanOptions) { o.OnUnparseable = rewrite.PolicyFail })
	if _, err := Plan(testcluster.Context(t), m.options, m.env); !errors.Is(err, ErrUnparseable) {
		t.Fatal(err)
	}
	attackFiles(t, attackedCommand{name: "repair", m: m, run: func(env Environment) error {
		_, err := Repair(RepairOptions{RunDir: m.run.RunDir, Accept: []string{"bad-event-uuid", "bad-action-uuid", "bad-sequence"}}, env)
		return err
	}})
}
