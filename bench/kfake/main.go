// Command kfake measures the fake broker of Go programs: the median of its start and of a new client's first record,
// both in milliseconds. With the address of another broker it measures only the record, to a topic that it makes.
//
// Usage: kfake COUNT [HOST:PORT]
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	count, err := strconv.Atoi(os.Args[1])
	check(err)
	var starts, records []time.Duration
	for number := range count {
		topic := fmt.Sprintf("topic-%d", number)
		if len(os.Args) > 2 {
			records = append(records, firstRecord(topic, os.Args[2]))
			continue
		}
		began := time.Now()
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
		check(err)
		starts = append(starts, time.Since(began))
		records = append(records, firstRecord(topic, cluster.ListenAddrs()...))
		cluster.Close()
	}
	if len(starts) > 0 {
		fmt.Println(median(starts))
	}
	fmt.Println(median(records))
}

// firstRecord returns how long a new client takes to make the topic and to produce its first record.
func firstRecord(topic string, addresses ...string) time.Duration {
	began := time.Now()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))
	check(err)
	defer client.Close()
	check(client.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr())
	return time.Since(began)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func median(durations []time.Duration) float64 {
	slices.Sort(durations)
	return durations[len(durations)/2].Seconds() * 1000
}
