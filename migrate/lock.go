package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// One apply at a time, with what Kafka itself provides.
//
// Each apply asks the transaction coordinator for a producer id under a
// transactional id that belongs to the target topic. The coordinator hands out
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
// That holds for as long as the partition leaders remember the newer epoch:
// producer.id.expiration.ms, a day unless the brokers say otherwise, after the
// last record of the newer apply. So an apply that finds its last acknowledgement
// half a day old sends nothing more. The coordinator remembers the producer id for
// transactional.id.expiration.ms, a week.

// lockName is the transactional id under which a target topic is written.
func lockName(topic string) string { return "rekey-" + topic }

// acquire takes the lock of a target topic away from whoever holds it.
func (c *cluster) acquire(ctx context.Context, topic string) (producer, error) {
	name := lockName(topic)
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
		response, err := coordinator.InitProducerID(request)
		if err == nil && !errors.Is(response.Err, sarama.ErrNoError) {
			err = response.Err
		}
		if err != nil {
			return lockDenied(name, err)
		}
		p = producer{id: response.ProducerID, epoch: response.ProducerEpoch}
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

func lockDenied(name string, err error) error {
	switch {
	case errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		return notPermitted("Write", fmt.Sprintf("transactional id %s", name), err)
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return notPermitted("IdempotentWrite", "the cluster", err)
	}
	return err
}
