package migrate

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rekey/fixtures/testcluster"
)

// A run directory on a small file system of its own that is really full, and then
// really read-only.
func TestRunDirFull(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), smallTopic(), nil)
	m.env.Logf = func(string, ...any) {}
	mount := t.TempDir()
	err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=1m")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("only root may mount a file system:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	m.options.RunDir = filepath.Join(mount, "run")
	m.run.RunDir = m.options.RunDir
	filler := filepath.Join(mount, "filler")
	// fill leaves some bytes.
	fill := func(left int64) {
		t.Helper()
		var stat syscall.Statfs_t
		if err := syscall.Statfs(mount, &stat); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filler, make([]byte, max(0, int64(stat.Bavail)*stat.Bsize-left)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := func() {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	page := int64(os.Getpagesize())
	planned := false
	for left := int64(0); !planned; left += 2 * page {
		fill(left)
		_, err := Plan(testcluster.Context(t), m.options, m.env)
		free()
		if planned = err == nil; !planned && !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d bytes left: %v", left, err)
		}
		if has, hasErr := onDisk(m.run.RunDir).has(planFileName); hasErr != nil || has != planned {
			t.Fatalf("%d bytes left: %v, and there is a plan: %t, %v", left, err, has, hasErr)
		}
		if hidden, err := filepath.Glob(filepath.Join(m.run.RunDir, ".*")); err != nil || len(hidden) > 0 {
			t.Fatalf("%d bytes left: left behind: %v, %v", left, hidden, err)
		}
		if left == 0 && planned {
			t.Fatal("the disk was not full")
		}
	}
	fill(0)
	_, err = Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, 2, "cannot write to --run-dir", "no space left")
	free()
	m.apply(t)
	if err := syscall.Mount("", mount, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err = Verify(testcluster.Context(t), m.run, m.env)
	refused(t, err, 2, "cannot write to --run-dir", "read-only")
	if err := syscall.Mount("", mount, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	m.verify(t)
	m.check(t)
}
