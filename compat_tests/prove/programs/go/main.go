// Right: orders are read, and receipts and offsets written, in one transaction; with franz-go.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time" // shortens a trial

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.TransactionalID("billing-"+os.Getenv("ONCELOG_PROVE_INSTANCE")),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(6*time.Second),                                            // shortens a trial
		kgo.HeartbeatInterval(100*time.Millisecond),                                  // shortens a trial
		kgo.FetchMaxWait(100*time.Millisecond),                                       // shortens a trial
		kgo.MetadataMinAge(20*time.Millisecond),                                      // shortens a trial
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), // shortens a trial
	)
	check(err)
	defer session.Close()
	for stopped.Err() == nil {
		orders := session.PollRecords(stopped, 4)
		if orders.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		receipts := kgo.AbortingFirstErrPromise(session.Client())
		orders.EachRecord(func(order *kgo.Record) {
			receipt := &kgo.Record{Topic: "receipts", Key: order.Key, Value: append([]byte("paid: "), order.Value...)}
			session.Produce(context.Background(), receipt, receipts.Promise())
		})
		// A transaction that ends otherwise than by a commit has moved the session back to its orders.
		_, err := session.End(context.Background(), kgo.TransactionEndTry(receipts.Err() == nil))
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
