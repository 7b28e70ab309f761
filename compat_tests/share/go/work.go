package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// event is a line of what a worker reports, as ShareWorker.java has it.
type event struct {
	At      int64      `json:"at"`
	Event   string     `json:"event"`
	Records [][3]int64 `json:"records"`
}

func tell(name string, rows [][3]int64) {
	line, err := json.Marshal(event{time.Now().UnixMilli(), name, rows})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// work reads and acknowledges at random until it is killed.
func work(servers, topic, group string, seed int64) {
	random := rand.New(rand.NewSource(seed))
	var lock sync.Mutex
	failed := map[int32]bool{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareMaxRecords(int32(1+random.Intn(20))),
		kgo.MaxConcurrentFetches(0), // what is fetched is polled at once
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			lock.Lock()
			defer lock.Unlock()
			for _, result := range results {
				failed[result.Partition] = failed[result.Partition] || result.Err != nil
			}
		}),
	)
	if err != nil {
		panic(err)
	}
	for {
		records := client.PollFetches(context.Background()).Records()
		if len(records) == 0 {
			continue
		}
		got := [][3]int64{}
		said := [][3]int64{}
		for _, record := range records {
			partition := int64(record.Partition)
			got = append(got, [3]int64{partition, record.Offset, int64(record.DeliveryCount())})
			status := kgo.AckAccept
			if drawn := random.Intn(100); drawn >= 97 {
				status = kgo.AckReject
			} else if drawn >= 80 {
				status = kgo.AckRelease
			}
			said = append(said, [3]int64{partition, record.Offset, int64(status)})
		}
		tell("got", got)
		lock.Lock()
		clear(failed)
		lock.Unlock()
		for at, record := range records {
			record.Ack(kgo.AckStatus(said[at][2]))
		}
		if err := client.FlushAcks(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		done := [][3]int64{}
		lock.Lock()
		for _, row := range said {
			if !failed[int32(row[0])] {
				done = append(done, row)
			}
		}
		lock.Unlock()
		tell("said", done)
	}
}
