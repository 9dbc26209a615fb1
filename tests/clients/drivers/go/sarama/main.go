// sarama with the line protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"klamm.example/drivers/lines"
)

var codecs = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func hello(*lines.Question) (any, error) {
	return lines.Hello{
		Version:   lines.Version("github.com/IBM/sarama"),
		Codecs:    []string{"none", "gzip", "snappy", "lz4", "zstd"},
		Protocols: []string{"classic"},
		Cannot:    map[string]string{},
	}, nil
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

func produce(q *lines.Question) (any, error) {
	config := config()
	config.Producer.Compression = codecs[q.Config["compression.type"]]
	producer, err := newProducer(q, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return sendAll(producer, q)
}

func newProducer(q *lines.Question, config *sarama.Config) (sarama.SyncProducer, error) {
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer([]string{q.Address}, config)
}

func sendAll(producer sarama.SyncProducer, q *lines.Question) (any, error) {
	var messages []*sarama.ProducerMessage
	for _, sent := range q.Records {
		message := &sarama.ProducerMessage{Topic: q.Topic, Partition: sent.Partition, Timestamp: sent.Time()}
		if sent.Key != nil {
			message.Key = sarama.ByteEncoder(sent.Key)
		}
		if sent.Value != nil {
			message.Value = sarama.ByteEncoder(sent.Value)
		}
		for _, header := range sent.Headers {
			message.Headers = append(
				message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) && len(failed) > 0 {
			return nil, fmt.Errorf("%w: %w", err, failed[0].Err)
		}
		return nil, err
	}
	offsets := []int64{}
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, nil
}

func row(message *sarama.ConsumerMessage) lines.Row {
	var headers []lines.Header
	for _, header := range message.Headers {
		headers = append(headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	return lines.Row{
		Partition: message.Partition, Offset: message.Offset, Time: message.Timestamp,
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func readerConfig(q *lines.Question) *sarama.Config {
	config := config()
	if q.Config["isolation.level"] == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	return config
}

func consume(q *lines.Question) (any, error) {
	consumer, err := sarama.NewConsumer([]string{q.Address}, readerConfig(q))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	rows := []lines.Row{}
	late := time.After(lines.Timeout)
	err = q.Range(func(partition int32, start, end int64) error {
		reader, err := consumer.ConsumePartition(q.Topic, partition, start)
		if err != nil {
			return err
		}
		defer reader.Close()
		for at := start; at < end; {
			select {
			case message := <-reader.Messages():
				rows = append(rows, row(message))
				at = message.Offset + 1
			case <-late:
				return fmt.Errorf("timed out after %d records", len(rows))
			}
		}
		return nil
	})
	return rows, err
}

func offsetForTime(q *lines.Question) (any, error) {
	client, err := sarama.NewClient([]string{q.Address}, config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.GetOffset(q.Topic, q.Partition, q.Timestamp)
}

// member puts what its sessions bring into one channel, with the session that must commit it.
type member struct {
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}
	arrived chan delivery
	polled  []delivery
	failed  error
}

type delivery struct {
	session sarama.ConsumerGroupSession
	message *sarama.ConsumerMessage
}

var (
	current  *member
	producer sarama.SyncProducer
)

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case m.arrived <- delivery{session, message}:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func open(q *lines.Question) (any, error) {
	config := readerConfig(q)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	group, err := sarama.NewConsumerGroup([]string{q.Address}, q.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	current = &member{group: group, cancel: cancel, ended: make(chan struct{}), arrived: make(chan delivery)}
	topic := q.Topic
	go func(m *member) {
		defer close(m.ended)
		for ctx.Err() == nil && m.failed == nil {
			m.failed = m.group.Consume(ctx, []string{topic}, m)
		}
	}(current)
	return nil, nil
}

func poll(q *lines.Question) (any, error) {
	return lines.Collect(q.PollTimeout(), func(wait time.Duration) (lines.Row, bool, error) {
		if wait == 0 {
			wait = 5 * time.Millisecond
		}
		select {
		case arrived := <-current.arrived:
			current.polled = append(current.polled, arrived)
			return row(arrived.message), true, nil
		case <-current.ended:
			return lines.Row{}, false, current.failed
		case <-time.After(wait):
			return lines.Row{}, false, nil
		}
	})
}

func commit(*lines.Question) (any, error) {
	for _, one := range current.polled {
		one.session.MarkMessage(one.message, "")
	}
	if last := len(current.polled) - 1; last >= 0 {
		current.polled[last].session.Commit()
	}
	current.polled = nil
	return nil, nil
}

func closeMember(*lines.Question) (any, error) {
	current.cancel()
	err := current.group.Close()
	<-current.ended
	return nil, err
}

func begin(q *lines.Question) (any, error) {
	if producer == nil {
		config := config()
		config.Producer.Transaction.ID = q.ID
		made, err := newProducer(q, config)
		if err != nil {
			return nil, err
		}
		producer = made
	}
	return nil, producer.BeginTxn()
}

func send(q *lines.Question) (any, error) { return sendAll(producer, q) }

func end(q *lines.Question) (any, error) {
	if q.Positions {
		if err := addPositions(q); err != nil {
			return nil, err
		}
	}
	if q.Commit {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

func addPositions(q *lines.Question) error {
	next := map[int32]int64{}
	for _, one := range current.polled {
		next[one.message.Partition] = one.message.Offset + 1
	}
	last := current.polled[len(current.polled)-1]
	session, topic := last.session, last.message.Topic
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for partition, offset := range next {
		position := &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset, LeaderEpoch: -1}
		offsets[topic] = append(offsets[topic], position)
	}
	current.polled = nil
	return producer.AddOffsetsToTxnWithGroupMetadata(offsets, &sarama.ConsumerGroupMetadata{
		GroupID: q.Group, GenerationID: session.GenerationID(), MemberID: session.MemberID(),
	})
}

func main() {
	lines.Serve(map[string]func(*lines.Question) (any, error){
		"hello":           hello,
		"produce":         produce,
		"consume":         consume,
		"offset_for_time": offsetForTime,
		"open":            open,
		"poll":            poll,
		"commit":          commit,
		"close":           closeMember,
		"begin":           begin,
		"send":            send,
		"end":             end,
	})
}
