package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func franzOptions(given settings) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(given.Servers)}
	if given.Protocol == "SSL" || given.Protocol == "SASL_SSL" {
		config, err := tlsConfig(given)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if given.Token != "" {
		token := scram.Auth{User: given.User, Pass: given.Password, IsToken: true}
		return append(options, kgo.SASL(token.AsSha256Mechanism())), nil
	}
	switch given.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(given.Token_file)
			return oauth.Auth{Token: string(token)}, err
		})))
	}
	return options, nil
}

func franz(one asked) (string, error) {
	options, err := franzOptions(one.Settings)
	if err != nil {
		return "", err
	}
	timeout := time.Duration(one.Timeout_ms) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	options = append(options, kgo.RetryTimeout(timeout))
	producer, err := kgo.NewClient(append(options, kgo.TransactionalID(one.Topic))...)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil {
		return "", err
	}
	if err := producer.BeginTransaction(); err != nil {
		return "", err
	}
	record := &kgo.Record{Topic: one.Topic, Value: []byte(one.Value)}
	if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		return "", err
	}
	if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return "", err
	}
	consumer, err := kgo.NewClient(append(
		options,
		kgo.ConsumerGroup(one.Topic),
		kgo.ConsumeTopics(one.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	for _, found := range fetches.Records() {
		return string(found.Value), consumer.CommitUncommittedOffsets(ctx)
	}
	return "", errors.New("no record")
}

func keepFranz(one asked, dialer *dialer) (func(string) error, error) {
	options, err := franzOptions(one.Settings)
	if err != nil {
		return nil, err
	}
	producer, err := kgo.NewClient(append(options, kgo.Dialer(dialer.DialContext))...)
	if err != nil {
		return nil, err
	}
	return func(value string) error {
		timeout := time.Duration(one.Timeout_ms) * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return producer.ProduceSync(ctx, &kgo.Record{Topic: one.Topic, Value: []byte(value)}).FirstErr()
	}, nil
}
