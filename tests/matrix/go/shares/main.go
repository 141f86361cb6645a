// A worker of a share group with franz-go: accepts, releases or rejects messages by what they say, until it has accepted
// or rejected as many as it is told, and writes a line for each: its offset, its deliveries and what it says.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

func main() {
	if err := work(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(bootstrap, topic, group, count string) error {
	left, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	var refused error
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				refused = err
			}
		}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			fmt.Println(record.Offset, record.DeliveryCount(), string(record.Value))
			status := decide(record)
			client.MarkAcks(status, record)
			if status != kgo.AckRelease {
				left--
			}
		}
		if err := client.FlushAcks(ctx); err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
	}
	return nil
}

// What is to be retried is released once; what is bad is rejected.
func decide(record *kgo.Record) kgo.AckStatus {
	switch {
	case string(record.Value) == "retry" && record.DeliveryCount() == 1:
		return kgo.AckRelease
	case string(record.Value) == "bad":
		return kgo.AckReject
	}
	return kgo.AckAccept
}
