package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/rewrite"
)

// writerPadding is what the newer holder of a lock writes first.
func writerPadding() rewrite.Record {
	return rewrite.Record{Timestamp: 1, Key: []byte("padding"), Headers: []rewrite.Header{{Key: provenanceName, Value: rewrite.PaddingProvenance(rewrite.Whole)}}}
}

// writerHolder takes the lock of w's topic over a connection of its own.
func writerHolder(w *writerTopic) *writerTopic {
	w.Helper()
	other := *w
	other.cluster, other.dialer = writerConnect(w.TB, w.broker)
	return &other
}

func TestLockGoesToTheNewest(t *testing.T) {
	broker := testcluster.Start(t)
	const partitions = 3
	w := newWriterTopic(t, broker, partitions, nil)
	first := w.openPlain(2 * writerRecordSize())
	for i := range 30 {
		w.mustWrite(first, int32(i%partitions), writerRecord(i))
	}
	w.mustFlush(first)

	newer := writerHolder(w)
	second := newer.openPlain(2 * writerRecordSize())
	if a, b := first.producer, second.producer; a.id != b.id || b.epoch <= a.epoch {
		t.Fatalf("producer %+v after %+v: an older one is not fenced", b, a)
	}
	for p := range int32(partitions) {
		newer.mustWrite(second, p, writerPadding())
	}
	newer.mustFlush(second)

	// From here on the first can append nothing, and says why.
	err := func() error {
		for i := range 30 {
			r := writerRecord(100 + i)
			if err := first.Write(t.Context(), int32(i%partitions), &r); err != nil {
				return err
			}
		}
		return first.Flush(t.Context())
	}()
	if !errors.Is(err, ErrChanged) || ExitCode(err) != 4 || !strings.Contains(err.Error(), "another apply") || Advice(err) == "" {
		t.Errorf("the older holder: exit code %d, %v", ExitCode(err), err)
	}
	_ = first.Close()

	// The second goes on undisturbed.
	for i := range 30 {
		newer.mustWrite(second, int32(i%partitions), writerRecord(200+i))
	}
	newer.mustFlush(second)
	w.checkExact()

	// And the first may take it back.
	third := w.openPlain(2 * writerRecordSize())
	w.mustWrite(third, 0, writerPadding())
	w.mustFlush(third)
	w.checkExact()
	r := writerRecord(300)
	if err := errors.Join(second.Write(t.Context(), 0, &r), second.Flush(t.Context())); !errors.Is(err, ErrChanged) {
		t.Errorf("the second after the third: %v", err)
	}
	w.checkExact()
}

// TestLockFencesEachPartitionOnItsOwn shows why apply writes its padding record
// to every partition before it looks at any: only that record tells the
// partition's leader of the newer epoch.
func TestLockFencesEachPartitionOnItsOwn(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker fences all partitions at once")
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 2, nil)
	first := w.openPlain(writerRecordSize())
	for p := range int32(2) {
		w.mustWrite(first, p, writerRecord(int(p)))
	}
	w.mustFlush(first)
	second := writerHolder(w).openPlain(writerRecordSize())
	// The lock is taken, but nothing is written yet: the first still may.
	for p := range int32(2) {
		w.mustWrite(first, p, writerRecord(10+int(p)))
	}
	w.mustFlush(first)
	w.mustWrite(second, 0, writerPadding())
	w.mustFlush(second)
	w.mustWrite(first, 1, writerRecord(20)) // partition 1 has not heard of the second
	w.mustFlush(first)
	w.checkExact()
	w.mustWrite(second, 1, writerPadding())
	w.mustFlush(second)
	w.checkExact()
	r := writerRecord(30)
	if err := errors.Join(first.Write(t.Context(), 1, &r), first.Flush(t.Context())); !errors.Is(err, ErrChanged) {
		t.Errorf("the older holder: %v", err)
	}
	w.checkExact()
}

// TestLockHoldsWhileTwoWrite lets an older holder write as fast as it can while
// the lock changes hands: nothing of it may lie behind the newer one's padding.
func TestLockHoldsWhileTwoWrite(t *testing.T) {
	broker := testcluster.Start(t)
	const partitions = 4
	w := newWriterTopic(t, broker, partitions, nil)
	first := w.openPlain(3 * writerRecordSize())
	running, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			if i == 200 {
				close(running)
			}
			r := writerRecord(i)
			if err := first.Write(t.Context(), int32(i%partitions), &r); err != nil {
				stopped <- err
				return
			}
		}
	}()
	<-running
	second := writerHolder(w).openPlain(3 * writerRecordSize())
	padding := writerPadding()
	for p := range int32(partitions) {
		if err := second.Write(t.Context(), p, &padding); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; !errors.Is(err, ErrChanged) {
		t.Errorf("the older holder: %v", err)
	}
	_ = first.Close()
	got, err := reader.Read(testcluster.Context(t), broker.Addrs(), w.name)
	if err != nil {
		t.Fatal(err)
	}
	var last [partitions]string
	for _, r := range got {
		last[r.Partition] = string(r.Key)
	}
	for p, key := range last {
		if key != "padding" {
			t.Errorf("partition %d ends with %q, not with the newer holder's padding", p, key)
		}
	}
}

func TestLocksOfTwoTopicsDoNotMeet(t *testing.T) {
	broker := testcluster.Start(t)
	a, b := newWriterTopic(t, broker, 1, nil), newWriterTopic(t, broker, 1, nil)
	toA, toB := a.openPlain(1<<12), b.openPlain(1<<12)
	for i := range 3 {
		a.mustWrite(toA, 0, writerRecord(i))
		b.mustWrite(toB, 0, writerRecord(i))
		a.mustFlush(toA)
		b.mustFlush(toB)
	}
	a.checkExact()
	b.checkExact()
}

func TestLockSurvivesWhatPasses(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "makes the coordinator fail")
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.InitProducerID} {
		for _, code := range []*kerr.Error{
			kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ConcurrentTransactions,
			kerr.RequestTimedOut, kerr.NetworkException, nil, // nil: the connection ends
		} {
			what := "connection ends"
			if code != nil {
				what = code.Message
			}
			t.Run(fmt.Sprint(key.Name(), " ", what), func(t *testing.T) {
				broker := testcluster.StartWith(t, testcluster.Options{Brokers: 2})
				w := newWriterTopic(t, broker, 1, nil)
				cluster := broker.Fake().Cluster()
				const times = 2
				met := 0
				cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
					cluster.KeepControl()
					if met++; met > times {
						return nil, nil, false
					}
					if code == nil {
						return nil, errors.New("cut"), true
					}
					return writerLockAnswer(r, code), nil, true
				})
				to := w.openPlain(1 << 12)
				if met <= times {
					t.Fatalf("the coordinator was asked %d times", met)
				}
				w.mustWrite(to, 0, writerRecord(0))
				w.mustFlush(to)
				w.checkExact()
			})
		}
	}
}

// writerLockAnswer answers a request for or to a coordinator with a code.
func writerLockAnswer(r kmsg.Request, code *kerr.Error) kmsg.Response {
	response := r.ResponseKind()
	switch response := response.(type) {
	case *kmsg.FindCoordinatorResponse:
		response.ErrorCode = code.Code
	case *kmsg.InitProducerIDResponse:
		response.ErrorCode = code.Code
	}
	return response
}

func TestLockFollowsTheCoordinator(t *testing.T) {
	testcluster.RequireFake(t, "moves coordinators")
	broker := testcluster.StartWith(t, testcluster.Options{Brokers: 3})
	w := newWriterTopic(t, broker, 1, nil)
	last := w.lock()
	for i := range 10 {
		broker.Fake().Cluster().RehashCoordinators()
		if i == 5 { // and the client does not know yet that one is gone
			if err := broker.Fake().Cluster().RemoveNode(broker.Fake().Cluster().CoordinatorFor(lockName(w.name, rewrite.Whole))); err != nil {
				t.Fatal(err)
			}
		}
		next := w.lock()
		if next.id != last.id || next.epoch <= last.epoch {
			t.Fatalf("producer %+v after %+v", next, last)
		}
		last = next
	}
}

func TestLockNamesWhatIsNotPermitted(t *testing.T) {
	testcluster.RequireFake(t, "makes the coordinator refuse")
	broker := testcluster.Start(t)
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.InitProducerID} {
		for _, c := range []struct {
			code  *kerr.Error
			names string
		}{
			{kerr.TransactionalIDAuthorizationFailed, "Write on transactional id rekey-"},
			{kerr.ClusterAuthorizationFailed, "IdempotentWrite on the cluster"},
		} {
			t.Run(fmt.Sprint(key.Name(), " ", c.code.Message), func(t *testing.T) {
				w := newWriterTopic(t, broker, 1, nil)
				cluster := broker.Fake().Cluster()
				asked := 0
				cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
					asked++
					return writerLockAnswer(r, c.code), nil, true
				})
				_, err := w.cluster.acquire(t.Context(), lockName(w.name, rewrite.Whole))
				if !errors.Is(err, ErrPreflight) || ExitCode(err) != 6 || !errors.Is(err, sarama.KError(c.code.Code)) {
					t.Errorf("exit code %d: %v", ExitCode(err), err)
				}
				if err != nil && !strings.Contains(err.Error(), c.names) {
					t.Errorf("the message does not name %q: %v", c.names, err)
				}
				if c.code == kerr.TransactionalIDAuthorizationFailed && !strings.Contains(fmt.Sprint(err), lockName(w.name, rewrite.Whole)) {
					t.Errorf("the message does not name the transactional id %s: %v", lockName(w.name, rewrite.Whole), err)
				}
				if Advice(err) == "" {
					t.Error("no advice")
				}
				if asked != 1 {
					t.Errorf("asked %d times; asking again grants nothing", asked)
				}
			})
		}
	}
}

func TestLockGivesUp(t *testing.T) {
	testcluster.RequireFake(t, "makes the coordinator fail")
	broker := testcluster.Start(t)
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.InitProducerID} {
		for _, c := range []struct {
			code   *kerr.Error
			passes bool
		}{
			{kerr.CoordinatorNotAvailable, true}, {kerr.ConcurrentTransactions, true},
			{kerr.InvalidTransactionTimeout, false}, {kerr.UnknownServerError, false},
		} {
			t.Run(fmt.Sprint(key.Name(), " ", c.code.Message), func(t *testing.T) {
				w := newWriterTopic(t, broker, 1, nil)
				w.cluster.patience = writerPatience
				handle := broker.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, TxnID: lockName(w.name, rewrite.Whole), Err: c.code, Count: -1})
				defer handle.Remove()
				_, err := w.cluster.acquire(t.Context(), lockName(w.name, rewrite.Whole))
				if err == nil || ExitCode(err) != 1 || !strings.Contains(err.Error(), lockName(w.name, rewrite.Whole)) || !errors.Is(err, sarama.KError(c.code.Code)) {
					t.Errorf("exit code %d: %v", ExitCode(err), err)
				}
				if got := handle.Hits() > 1; got != c.passes {
					t.Errorf("asked %d times", handle.Hits())
				}
			})
		}
	}
}

func TestLockStopsWaitingWhenTheCallerGivesUp(t *testing.T) {
	testcluster.RequireFake(t, "makes the coordinator fail")
	broker := testcluster.Start(t)
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.InitProducerID} {
		t.Run(key.Name(), func(t *testing.T) {
			w := newWriterTopic(t, broker, 1, nil)
			handle := broker.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, TxnID: lockName(w.name, rewrite.Whole), Err: kerr.CoordinatorNotAvailable, Count: -1})
			defer handle.Remove()
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := w.cluster.acquire(ctx, lockName(w.name, rewrite.Whole))
				failed <- err
			}()
			if err := handle.Wait(testcluster.Context(t), 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}
