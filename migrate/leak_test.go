package migrate

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/report"
	"rekey/rewrite"
)

// canceller ends a context when the broker was sent a request for the n-th time.
// Requests, unlike what the progress is told, do not become fewer on a fast
// machine.
type canceller struct {
	left   atomic.Int64
	cancel atomic.Pointer[context.CancelFunc]
}

func newCanceller(c *testcluster.Cluster) *canceller {
	waiting := &canceller{}
	c.Fake().Cluster().Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().Cluster().KeepControl()
		if waiting.left.Add(-1) == 0 {
			(*waiting.cancel.Load())()
		}
		return nil, nil, false
	})
	return waiting
}

// after cancels at the n-th request from now on.
func (c *canceller) after(n int64, cancel context.CancelFunc) {
	c.cancel.Store(&cancel)
	c.left.Store(n)
}

// nothingLeaks demands that what phases do leaves no goroutine and no open file. The
// broker that a test starts is gone by then, too.
func nothingLeaks(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	testcluster.RequireFake(t, "a broker in the same process is part of what must end")
	// The first socket of a process makes the runtime open files of its own.
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	running, files := goleak.IgnoreCurrent(), openFiles(t)
	t.Run("phases", do)
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}
	// Connections are closed when those who wait for them notice.
	if err := wire.Poll(testcluster.Context(t), func() (bool, error) {
		if left := openFiles(t); left > files {
			return false, errors.New("more files are open than before")
		}
		return true, nil
	}); err != nil {
		t.Errorf("%v: %d, before %d", err, openFiles(t), files)
	}
}

// openFiles counts file descriptors; 0 where the system does not say.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}

func TestNoLeakAfterSuccess(t *testing.T) {
	nothingLeaks(t, func(t *testing.T) {
		m := newMigration(t, testcluster.Start(t), smallTopic(), nil).planAndApply(t)
		m.apply(t)
		m.verify(t)
		if _, err := m.rehearse(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := m.extend(t); err != nil {
			t.Error(err)
		}
	})
}

func TestNoLeakAfterFailure(t *testing.T) {
	nothingLeaks(t, func(t *testing.T) {
		c := testcluster.Start(t)
		m := newMigration(t, c, smallTopic(), func(o *PlanOptions) { o.OnUnparseable = rewrite.PolicyFail })
		_, err := Plan(testcluster.Context(t), m.options, m.env)
		refused(t, err, 3)
		missing := m.options
		missing.Source, missing.RunDir = "no such topic", m.options.RunDir+"-missing"
		_, err = Plan(testcluster.Context(t), missing, m.env)
		refused(t, err, 2)

		m = migrationOf(t, c, m.source, nil)
		m.plan(t)
		_, err = Verify(testcluster.Context(t), m.run, m.env) // there is no target
		refused(t, err, 4)
		m.env.files = awkward{create: func(pattern string) error {
			if strings.HasPrefix(pattern, "."+applyFileName) {
				return os.ErrClosed
			}
			return nil
		}}
		_, err = Apply(testcluster.Context(t), m.run, m.env)
		refused(t, err, 1)
		m.env.files = nil
		m.apply(t)
		for partition, end := range m.ends(t, m.target) {
			c.DeleteRecords(t, m.target, int32(partition), end)
		}
		_, err = Verify(testcluster.Context(t), m.run, m.env)
		refused(t, err, 5)
		m.deleteTopic(t, m.source)
		_, err = Apply(testcluster.Context(t), m.run, m.env)
		refused(t, err, 4)
		_, err = m.rehearse(t.Context())
		refused(t, err, 4)
	})
}

func TestNoLeakAfterCancel(t *testing.T) {
	nothingLeaks(t, func(t *testing.T) {
		c := testcluster.Start(t)
		m := newMigration(t, c, smallTopic(), nil)
		interrupt := newCanceller(c)
		phases := []struct {
			name string
			run  func(context.Context, *migration) error
		}{
			{"plan", func(ctx context.Context, m *migration) error {
				_, err := Plan(ctx, m.options, m.env)
				return err
			}},
			{"apply", func(ctx context.Context, m *migration) error {
				_, err := Apply(ctx, m.run, m.env)
				return err
			}},
			{"verify", func(ctx context.Context, m *migration) error {
				_, err := Verify(ctx, m.run, m.env)
				return err
			}},
			{"rehearse", func(ctx context.Context, m *migration) error {
				_, err := m.rehearse(ctx)
				return err
			}},
		}
		for _, phase := range phases {
			cancelled := 0
			for n := int64(0); ; n = n*2 + 1 {
				ctx, cancel := context.WithCancel(testcluster.Context(t))
				if n == 0 {
					cancel() // before it begins
				}
				interrupt.after(n, cancel)
				err := phase.run(ctx, m)
				cancel()
				if err != nil {
					refused(t, err, 7)
					cancelled++
					continue
				}
				if n == 0 {
					t.Errorf("%s succeeds although it was cancelled", phase.name)
				}
				break
			}
			if cancelled < 3 {
				t.Errorf("%s was cancelled %d times only", phase.name, cancelled)
			}
		}
		m.verify(t)
	})
}

// rehearse lets a job of release 0.3 restore all there is.
func (m *migration) rehearse(ctx context.Context) (*report.Rehearse, error) {
	return Rehearse(ctx, RehearseOptions{RunOptions: m.run, Runtimes: []string{"0.3"}, Markers: []string{MarkerAtEnd}}, m.env)
}
