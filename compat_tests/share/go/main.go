// A share consumer of franz-go that does with each record what its value says, and reports what it was given.
//
// Arguments: bootstrap servers, topic, group, how many deliveries to wait for, and "strict" for the acquire mode
// record_limit with one record for a poll; or a seed and "work" (work.go). Values: accept, release (the first time; then accept), reject, renew (until its
// first lock would have ended; then accept), nothing (accepted with the next poll), close (end with it, the first time).
// It writes one line of JSON: deliveries (value, delivery count), errors of acknowledgements, the most records of a poll.
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience    = 60 * time.Second
	renewsEvery = 250 * time.Millisecond
	margin      = 500 * time.Millisecond
)

type report struct {
	Deliveries [][2]string `json:"deliveries"`
	Errors     []string    `json:"errors"`
	Most       int         `json:"most"`
	lock       sync.Mutex
}

func (r *report) note(err error) {
	if err != nil {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.Errors = append(r.Errors, err.Error())
	}
}

func main() {
	wanted, err := strconv.Atoi(os.Args[4])
	if err != nil {
		panic(err)
	}
	if os.Args[5] == "work" {
		work(os.Args[1], os.Args[2], os.Args[3], int64(wanted))
	}
	seen := report{Deliveries: [][2]string{}, Errors: []string{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ShareGroup(os.Args[3]),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { seen.note(results.Error()) }),
	}
	if os.Args[5] == "strict" {
		options = append(options, kgo.ShareMaxRecords(1), kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if read(ctx, client, wanted, &seen) {
		ended, end := context.WithCancel(ctx)
		end()
		client.PollFetches(ended) // accepts what the last poll gave
		seen.note(client.FlushAcks(ctx))
	}
	client.Close()
	seen.lock.Lock()
	defer seen.lock.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(&seen); err != nil {
		panic(err)
	}
}

// read tells whether all deliveries came, without a record that says close.
func read(ctx context.Context, client *kgo.Client, wanted int, seen *report) bool {
	for len(seen.Deliveries) < wanted {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			seen.note(err)
			return false
		}
		records := fetches.Records()
		seen.Most = max(seen.Most, len(records))
		for _, record := range records {
			value, count := string(record.Value), record.DeliveryCount()
			seen.Deliveries = append(seen.Deliveries, [2]string{value, strconv.Itoa(int(count))})
			switch {
			case value == "close" && count == 1:
				return false
			case value == "nothing":
			case value == "reject":
				record.Ack(kgo.AckReject)
			case value == "release" && count == 1:
				record.Ack(kgo.AckRelease)
			case value == "renew":
				hold(ctx, client, record, seen)
			default:
				record.Ack(kgo.AckAccept)
			}
		}
	}
	return true
}

// hold renews the lock of a record until the first one would have ended, then accepts it.
func hold(ctx context.Context, client *kgo.Client, record *kgo.Record, seen *report) {
	until := record.AcquisitionDeadline().Add(margin)
	for time.Now().Before(until) {
		record.Ack(kgo.AckRenew)
		seen.note(client.FlushAcks(ctx))
		time.Sleep(renewsEvery)
	}
	record.Ack(kgo.AckAccept)
}
