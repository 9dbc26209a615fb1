// franz-go with the line protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"klamm.example/drivers/lines"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var (
	member   *kgo.Client
	polled   []*kgo.Record
	session  *kgo.GroupTransactSession // has the member, if there are to be transactions with its positions
	producer *kgo.Client
)

func hello(*lines.Question) (any, error) {
	return lines.Hello{
		Version:   lines.Version("github.com/twmb/franz-go"),
		Codecs:    []string{"none", "gzip", "snappy", "lz4", "zstd"},
		Protocols: []string{"classic", "consumer"},
		Cannot:    map[string]string{},
	}, nil
}

func produce(q *lines.Question) (any, error) {
	codec := codecs["none"]
	if name := q.Config["compression.type"]; name != "" {
		codec = codecs[name]
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(q.Address),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return sendAll(client, q)
}

func sendAll(client *kgo.Client, q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	var records []*kgo.Record
	for _, sent := range q.Records {
		record := &kgo.Record{
			Topic: q.Topic, Partition: sent.Partition, Key: sent.Key, Value: sent.Value, Timestamp: sent.Time(),
		}
		for _, header := range sent.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	offsets := []int64{}
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return nil, result.Err
		}
	}
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func row(record *kgo.Record) lines.Row {
	var headers []lines.Header
	for _, header := range record.Headers {
		headers = append(headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return lines.Row{
		Partition: record.Partition, Offset: record.Offset, Time: record.Timestamp,
		Key: record.Key, Value: record.Value, Headers: headers,
	}
}

func isolation(q *lines.Question) kgo.Opt {
	if q.Config["isolation.level"] == "read_committed" {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func consume(q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	offsets := map[int32]kgo.Offset{}
	left := map[int32]int64{} // the end of each partition that is not read to it
	_ = q.Range(func(partition int32, start, end int64) error {
		offsets[partition] = kgo.NewOffset().At(start)
		if start < end {
			left[partition] = end
		}
		return nil
	})
	client, err := kgo.NewClient(
		kgo.SeedBrokers(q.Address),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{q.Topic: offsets}),
		kgo.FetchMaxWait(20*time.Millisecond),
		isolation(q),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	rows := []lines.Row{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("%v after %d records", errs, len(rows))
		}
		fetches.EachRecord(func(record *kgo.Record) {
			end, wanted := left[record.Partition]
			if wanted && record.Offset < end {
				rows = append(rows, row(record))
			}
			if record.Offset >= end-1 {
				delete(left, record.Partition)
			}
		})
	}
	return rows, nil
}

func offsetForTime(q *lines.Question) (any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(q.Address))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).ListOffsetsAfterMilli(context.Background(), q.Timestamp, q.Topic)
	if err != nil {
		return nil, err
	}
	offset, _ := found.Lookup(q.Topic, q.Partition)
	return offset.Offset, offset.Err
}

func open(q *lines.Question) (any, error) {
	var err error
	options := []kgo.Opt{
		kgo.SeedBrokers(q.Address),
		kgo.ConsumerGroup(q.Group),
		kgo.ConsumeTopics(q.Topic),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
	}
	if q.Config["group.protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	options = append(options, isolation(q))
	if q.ID == "" {
		member, err = kgo.NewClient(options...)
		return nil, err
	}
	options = append(options, kgo.TransactionalID(q.ID), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	session, err = kgo.NewGroupTransactSession(options...)
	if err == nil {
		member = session.Client()
	}
	return nil, err
}

func poll(q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.PollTimeout())
	defer cancel()
	answer := lines.Polled{Rows: []lines.Row{}}
	var fetches kgo.Fetches
	if session == nil {
		fetches = member.PollFetches(ctx)
	} else {
		fetches = session.PollFetches(ctx)
	}
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	fetches.EachRecord(func(record *kgo.Record) {
		answer.Rows = append(answer.Rows, row(record))
		polled = append(polled, record)
	})
	return answer, nil
}

func commit(*lines.Question) (any, error) {
	records := polled
	polled = nil
	return nil, member.CommitRecords(context.Background(), records...)
}

func closeMember(*lines.Question) (any, error) {
	member.Close()
	return nil, nil
}

func begin(q *lines.Question) (any, error) {
	if session != nil {
		return nil, session.Begin()
	}
	if producer == nil {
		var err error
		producer, err = kgo.NewClient(
			kgo.SeedBrokers(q.Address),
			kgo.TransactionalID(q.ID),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			return nil, err
		}
		if _, _, err = producer.ProducerID(context.Background()); err != nil { // now, not with the first record
			return nil, err
		}
	}
	return nil, producer.BeginTransaction()
}

func send(q *lines.Question) (any, error) {
	if session != nil {
		return sendAll(session.Client(), q)
	}
	return sendAll(producer, q)
}

// end has a session that takes the positions of all that it has polled into each of its transactions.
func end(q *lines.Question) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Timeout)
	defer cancel()
	if (session != nil) != q.Positions {
		return nil, errors.New("only a session has positions, and has them always")
	}
	if session == nil {
		return nil, producer.EndTransaction(ctx, kgo.TransactionEndTry(q.Commit))
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(q.Commit))
	if err == nil && committed != q.Commit {
		err = errors.New("not committed")
	}
	return nil, err
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
