// kafka-go with the line protocol.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"klamm.example/drivers/lines"
)

var codecs = map[string]kafka.Compression{
	"":       0,
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

var (
	member *kafka.Reader
	polled []kafka.Message
)

func hello(*lines.Question) (any, error) {
	return lines.Hello{
		Version:   lines.Version("github.com/segmentio/kafka-go"),
		Codecs:    []string{"none", "gzip", "snappy", "lz4", "zstd"},
		Protocols: []string{"classic"},
		Cannot: map[string]string{
			"transactions": "its Writer has no transactions",
			"markers":      "its Writer has no transactions, and its Reader takes their markers for records",
		},
	}, nil
}

func produce(q *lines.Question) (any, error) {
	next := 0
	transport := &kafka.Transport{} // the default one remembers which topics there were
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Transport:    transport,
		Addr:         kafka.TCP(q.Address),
		Topic:        q.Topic,
		RequiredAcks: kafka.RequireAll,
		Compression:  codecs[q.Config["compression.type"]],
		BatchTimeout: 5 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int {
			next++
			return int(q.Records[next-1].Partition)
		}),
	}
	var messages []kafka.Message
	for _, sent := range q.Records {
		message := kafka.Message{Key: sent.Key, Value: sent.Value, Time: sent.Time()}
		for _, header := range sent.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return nil, err
	}
	return nil, writer.Close() // it does not tell the offsets
}

func row(message kafka.Message) lines.Row {
	var headers []lines.Header
	for _, header := range message.Headers {
		headers = append(headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return lines.Row{
		Partition: int32(message.Partition), Offset: message.Offset, Time: message.Time,
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func isolation(q *lines.Question) kafka.IsolationLevel {
	if q.Config["isolation.level"] == "read_committed" {
		return kafka.ReadCommitted
	}
	return kafka.ReadUncommitted
}

func consume(q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	rows := []lines.Row{}
	err := q.Range(func(partition int32, start, end int64) error {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{q.Address}, Topic: q.Topic, Partition: int(partition), MaxWait: 20 * time.Millisecond,
			IsolationLevel: isolation(q),
		})
		defer reader.Close()
		if err := reader.SetOffset(start); err != nil {
			return err
		}
		for at := start; at < end; {
			message, err := reader.ReadMessage(ctx)
			if err != nil {
				return err
			}
			rows = append(rows, row(message))
			at = message.Offset + 1
		}
		return nil
	})
	return rows, err
}

func offsetForTime(q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	conn, err := kafka.DialLeader(ctx, "tcp", q.Address, q.Topic, int(q.Partition))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ReadOffset(time.UnixMilli(q.Timestamp))
}

func open(q *lines.Question) (any, error) {
	member = kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{q.Address},
		GroupID:           q.Group,
		Topic:             q.Topic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           100 * time.Millisecond,
		SessionTimeout:    6 * time.Second,
		HeartbeatInterval: 200 * time.Millisecond,
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
	})
	return nil, nil
}

func poll(q *lines.Question) (any, error) {
	return lines.Collect(q.PollTimeout(), func(wait time.Duration) (lines.Row, bool, error) {
		ctx, cancel := context.WithTimeout(context.Background(), max(wait, 5*time.Millisecond))
		defer cancel()
		message, err := member.FetchMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return lines.Row{}, false, nil
		}
		if err == nil {
			polled = append(polled, message)
		}
		return row(message), err == nil, err
	})
}

func commit(*lines.Question) (any, error) {
	messages := polled
	polled = nil
	return nil, member.CommitMessages(context.Background(), messages...)
}

func closeMember(*lines.Question) (any, error) { return nil, member.Close() }

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
	})
}
