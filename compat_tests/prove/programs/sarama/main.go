// Right for who promises at least once: an order is marked when its receipt is acknowledged, and Sarama commits what is
// marked once a second.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"
)

type billing struct{ producer sarama.SyncProducer }

func (billing) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (billing) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (b billing) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case order, open := <-claim.Messages():
			if !open {
				return nil
			}
			_, _, err := b.producer.SendMessage(&sarama.ProducerMessage{
				Topic: "receipts",
				Key:   sarama.ByteEncoder(order.Key),
				Value: sarama.ByteEncoder(append([]byte("paid: "), order.Value...)),
			})
			check(err)
			session.MarkMessage(order, "")
		}
	}
}

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	settings := sarama.NewConfig()
	settings.Producer.RequiredAcks = sarama.WaitForAll // by default the leader alone has to have the record
	settings.Producer.Return.Successes = true          // a SyncProducer wants it
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	servers := []string{os.Getenv("KAFKA_BOOTSTRAP_SERVERS")}
	producer, err := sarama.NewSyncProducer(servers, settings)
	check(err)
	defer producer.Close()
	group, err := sarama.NewConsumerGroup(servers, "billing", settings)
	check(err)
	defer group.Close()
	for stopped.Err() == nil {
		check(group.Consume(stopped, []string{"orders"}, billing{producer}))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err) // a supervisor starts the program again
	}
}
