package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"rekey/rewrite"
)

// One apply at a time for each source partition, with what Kafka itself provides.
//
// Each apply asks the transaction coordinator for a producer id under a
// transactional id that belongs to the target topic and to the division of the
// source partitions that it takes: all of them, or those of shard i of n. The coordinator hands out
// the same producer id with a higher epoch each time. No transaction is ever
// begun: records are written as by any idempotent producer. Before it looks at
// what is already on the target, an apply writes one padding record to every
// partition. From then on the partition leaders know the new epoch, and they
// refuse every batch of an older one with INVALID_PRODUCER_EPOCH.
//
// So the newest apply wins. An older one that was paused can append nothing
// after the newer one's padding record in a partition; what it appended before,
// the newer one sees, because it reads the target only after that record is
// acknowledged. The older one stops at its next write.
//
// Divisions that share a source partition, such as the whole and each shard, or
// 0/2 and 2/4, have different locks. So padding says which division wrote it, and
// after its own padding an apply A looks for that of others. For each division D
// that overlaps its own it takes D's lock as well, and makes each partition leader
// know an epoch of that lock which is at least as new: by a padding record, or
// because a still newer one is known there already. Then it looks again, until
// nothing new is found; only then it compares and writes records.
//
// Why that is enough: let A and B overlap, and neither have found the other dead.
//
//   - In each target partition one of the two first padding records comes first.
//     The other apply reads up to behind its own, so it finds the first. So at
//     least one of the two finds the other.
//   - Where A finds B, B took its lock before its padding and so before A takes
//     that lock. B appends nothing in a partition after A was there, and A reads
//     again afterwards: it sees all that B ever wrote.
//   - Where only A finds B, A is the newer one and goes on, and B stops.
//   - Where both find each other, A writes records only after its padding under
//     B's lock is in every partition, and B the same. If both wrote a record, each
//     would have been let in before the other was shut out everywhere: a circle in
//     time. So at most one of them writes records. Both may stop at their next
//     write; whoever is started again finds two dead ones.
//   - A padding record under D's lock that is refused was refused for a newer
//     holder. Older ones are excluded in that partition, which is what A wanted.
//     If the newer holder is an apply of D, it took the lock after all of A's own
//     padding was there, finds it, and shuts A out before it writes records. If it
//     is a shard that does not overlap A and excludes D as well, neither harms the
//     other. That is why a refusal under another's lock ends nothing.
//
// So shards of one n, which do not overlap, never take each other's lock. The
// padding that this rests on stays for as long as it is needed: the cleaner is kept
// off until an apply of the whole is done, and that one has excluded everything
// before it, or found every record there.
//
// That holds for as long as the partition leaders remember the newer epoch:
// producer.id.expiration.ms, a day unless the brokers say otherwise, after the
// last record of the newer apply. So an apply that finds its last acknowledgement
// half a day old sends nothing more; nor does one that took a lock that long ago. The coordinator remembers the producer id for
// transactional.id.expiration.ms, a week.

// lockName is the transactional id under which a division's records are written
// to a target topic. No topic has a name with a colon, so the lock of a shard is
// never that of another topic.
func lockName(topic string, d rewrite.Division) string {
	if d == rewrite.Whole {
		return "rekey-" + topic
	}
	return fmt.Sprintf("rekey-%s:%s", topic, d)
}

// acquire takes a lock away from whoever holds it.
func (c *cluster) acquire(ctx context.Context, name string) (producer, error) {
	request := &sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &name, TransactionTimeout: time.Minute,
		ProducerID: -1, ProducerEpoch: -1,
	}
	var p producer
	err := c.retry(ctx, "take the lock "+name, func() error {
		coordinator, err := c.coordinator(name)
		if err != nil {
			return lockDenied(name, err)
		}
		defer c.hangUp(coordinator)
		asked := time.Now()
		response, err := coordinator.InitProducerID(request)
		if err == nil && !errors.Is(response.Err, sarama.ErrNoError) {
			err = response.Err
		}
		if err != nil {
			return lockDenied(name, err)
		}
		p = producer{id: response.ProducerID, epoch: response.ProducerEpoch, since: asked}
		return nil
	})
	return p, err
}

// coordinator opens a connection to the coordinator of a transactional id. The
// client library's own lookup is no use here: while a cluster that never saw a
// transaction sets up its coordinators, it sleeps for many seconds that nothing
// can interrupt.
func (c *cluster) coordinator(name string) (*sarama.Broker, error) {
	broker := c.client.LeastLoadedBroker()
	if broker == nil {
		return nil, sarama.ErrOutOfBrokers
	}
	response, err := broker.FindCoordinator(&sarama.FindCoordinatorRequest{
		Version: 3, CoordinatorKey: name, CoordinatorType: sarama.CoordinatorTransaction,
	})
	if err != nil {
		return nil, err
	}
	if !errors.Is(response.Err, sarama.ErrNoError) {
		return nil, response.Err
	}
	coordinator := response.Coordinator
	if err := coordinator.Open(c.config); err != nil {
		return nil, err
	}
	if err := opened(coordinator); err != nil {
		return nil, err
	}
	return coordinator, nil
}

func (c *cluster) hangUp(broker *sarama.Broker) {
	if err := broker.Close(); err != nil && !errors.Is(err, sarama.ErrNotConnected) {
		c.env.Logf("close a connection to %s: %v", broker.Addr(), err)
	}
}

// overtaken says whether a write was refused because a newer holder of its lock is
// known.
func overtaken(err error) bool {
	return errors.Is(err, sarama.ErrInvalidProducerEpoch) || errors.Is(err, sarama.ErrProducerFenced)
}

func lockDenied(name string, err error) error {
	switch {
	case errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		return notPermitted("Write", fmt.Sprintf("transactional id %s", name), err)
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return notPermitted("IdempotentWrite", "the cluster", err)
	}
	return err
}
