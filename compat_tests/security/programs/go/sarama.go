package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"hash"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// Sarama brings no SCRAM of its own.
type scramClient struct {
	hash         func() hash.Hash
	conversation *scram.ClientConversation
}

func (client *scramClient) Begin(user, password, authorization string) error {
	made, err := scram.HashGeneratorFcn(client.hash).NewClient(user, password, authorization)
	if err == nil {
		client.conversation = made.NewConversation()
	}
	return err
}

func (client *scramClient) Step(challenge string) (string, error) {
	return client.conversation.Step(challenge)
}

func (client *scramClient) Done() bool {
	return client.conversation.Done()
}

// The file with a token.
type tokenFile string

func (file tokenFile) Token() (*sarama.AccessToken, error) {
	token, err := os.ReadFile(string(file))
	return &sarama.AccessToken{Token: string(token)}, err
}

func saramaConfig(given settings) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	if given.Protocol == "SSL" || given.Protocol == "SASL_SSL" {
		made, err := tlsConfig(given)
		if err != nil {
			return nil, err
		}
		config.Net.TLS.Enable, config.Net.TLS.Config = true, made
	}
	if given.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(given.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = given.User, given.Password
	}
	if given.Bare != "" {
		config.Net.SASL.Version, config.ApiVersionsRequest = sarama.SASLHandshakeV0, false // it wants both
	}
	switch given.Mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case "OAUTHBEARER":
		config.Net.SASL.TokenProvider = tokenFile(given.Token_file)
	}
	return config, nil
}

// The first record that a member of a group gets.
type firstRecord struct{ value chan string }

func (handler firstRecord) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler firstRecord) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler firstRecord) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	select {
	case found := <-claim.Messages():
		session.MarkMessage(found, "")
		session.Commit()
		handler.value <- string(found.Value)
	case <-session.Context().Done():
	}
	return nil
}

func throughSarama(one asked) (string, error) {
	config, err := saramaConfig(one.Settings)
	if err != nil {
		return "", err
	}
	timeout := time.Duration(one.Timeout_ms) * time.Millisecond
	config.Net.DialTimeout, config.Net.ReadTimeout = timeout, timeout
	config.Metadata.Retry.Max = 0
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = one.Topic
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	servers := []string{one.Settings.Servers}
	producer, err := sarama.NewSyncProducer(servers, config)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return "", err
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: one.Topic, Value: sarama.StringEncoder(one.Value)})
	if err != nil {
		return "", err
	}
	if err := producer.CommitTxn(); err != nil {
		return "", err
	}
	group, err := sarama.NewConsumerGroup(servers, one.Topic, config)
	if err != nil {
		return "", err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	handler := firstRecord{make(chan string, 1)}
	if err := group.Consume(ctx, []string{one.Topic}, handler); err != nil {
		return "", err
	}
	select {
	case value := <-handler.value:
		return value, nil
	default:
		return "", errors.New("no record")
	}
}

func keepSarama(one asked, dialer *dialer) (func(string) error, error) {
	config, err := saramaConfig(one.Settings)
	if err != nil {
		return nil, err
	}
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialer
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{one.Settings.Servers}, config)
	if err != nil {
		return nil, err
	}
	return func(value string) error {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: one.Topic, Value: sarama.StringEncoder(value)})
		return err
	}, nil
}
