// Right for who promises at least once: an order's offset is committed when its receipt is acknowledged; with kafka-go.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	servers := os.Getenv("KAFKA_BOOTSTRAP_SERVERS")
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{servers}, GroupID: "billing", Topic: "orders"})
	defer reader.Close()
	writer := &kafka.Writer{
		Addr:         kafka.TCP(servers),
		Topic:        "receipts",
		RequiredAcks: kafka.RequireAll,      // by default it waits for no broker
		BatchTimeout: 10 * time.Millisecond, // by default each write that is waited for takes a second
	}
	defer writer.Close()
	for stopped.Err() == nil {
		order, err := reader.FetchMessage(stopped)
		if stopped.Err() != nil {
			return
		}
		check(err)
		receipt := kafka.Message{Key: order.Key, Value: append([]byte("paid: "), order.Value...)}
		check(writer.WriteMessages(context.Background(), receipt))
		check(reader.CommitMessages(context.Background(), order))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err) // a supervisor starts the program again
	}
}
