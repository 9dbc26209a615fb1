// A load of one request after the other on each of many connections, from one thread with epoll, so that it measures the
// broker and not itself. Prints one line of JSON: requests, bytes, seconds, p50 and p99 in microseconds, and its own
// share of a core.
//
//	load produce ADDRESS TOPIC -connections 16 -partitions 1 -seconds 5   one record of 100 bytes per request, acks=all
//	load fetch ADDRESS TOPIC -connections 4 -bytes 65536 -seconds 5       a topic's partition 0, again and again
//	load drain ADDRESS TOPIC -bytes 4194304                               the same once, from beginning to end
//	load raw ADDRESS - -connections 4 -seconds 5                          frames of any content: a bare server
//	load handshakes ADDRESS - -tls ADDRESS -ca FILE -connections 2       TLS connections made and closed
//	load latency ADDRESS TOPIC -rate 200 -seconds 5                       from the send of a record to its fetch
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	produceVersion = 9
	fetchVersion   = 11
	recordBytes    = 100
)

type result struct {
	Requests int     `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Walked   int64   `json:"walked_bytes"` // before the time began
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Share    float64 `json:"own_share"`
}

func main() {
	if len(os.Args) < 4 {
		fail("usage: load produce|fetch|drain|raw|latency ADDRESS TOPIC [options]")
	}
	kind, address, topic := os.Args[1], os.Args[2], os.Args[3]
	options := flag.NewFlagSet(kind, flag.ExitOnError)
	connections := options.Int("connections", 1, "one request in flight on each")
	partitions := options.Int("partitions", 1, "connections write to them in turn")
	maxBytes := options.Int("bytes", 1<<20, "of a fetch")
	rate := options.Int("rate", 200, "records a second")
	seconds := options.Float64("seconds", 5, "how long")
	secure := options.String("tls", "", "HOST:PORT of a TLS listener of the same broker, for the load itself")
	authority := options.String("ca", "", "PEM file with the authority of its certificate")
	options.Parse(os.Args[4:])
	duration := time.Duration(*seconds * float64(time.Second))
	before := ownCPU()
	var found result
	run := run
	if *secure != "" {
		run = func(_ string, count int, duration time.Duration, make_ func(i int) request) result {
			return runTLS(*secure, *authority, count, duration, make_)
		}
	}
	switch kind {
	case "handshakes":
		found = handshakes(*secure, *authority, *connections, duration)
	case "produce":
		found = run(address, *connections, duration, func(i int) request {
			frame := produceFrame(topic, int32(i%*partitions), make([]byte, recordBytes))
			return func(answer []byte) []byte { checkProduced(answer); return frame }
		})
	case "fetch":
		frames, walked := fetchFrames(address, topic, *maxBytes)
		found = run(address, *connections, duration, func(i int) request {
			at := i * len(frames) / *connections
			return func([]byte) []byte { at++; return frames[at%len(frames)] }
		})
		found.Walked = walked
	case "raw":
		found = run(address, *connections, duration, func(int) request {
			return func([]byte) []byte { return []byte{0, 0, 0, 4, 0, 0, 0, 0} }
		})
	case "drain":
		found = drain(address, topic, *maxBytes)
	case "latency":
		found = latency(address, topic, *rate, duration)
	default:
		fail("load: no such kind: " + kind)
	}
	found.Share = (ownCPU() - before).Seconds() / found.Seconds
	json.NewEncoder(os.Stdout).Encode(found)
}

// A request returns the next frame; its argument is the last response, nil at first.
type request func(answer []byte) []byte

type connection struct {
	fd     int
	next   request
	sent   time.Time
	buffer []byte
	got    int
}

// run keeps one request in flight on each connection until the time is over.
func run(address string, count int, duration time.Duration, make_ func(i int) request) result {
	poll, err := syscall.EpollCreate1(0)
	check(err)
	byFD := map[int32]*connection{}
	for i := range count {
		each := &connection{fd: connect(address), next: make_(i), buffer: make([]byte, 64<<10)}
		check(syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, each.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(each.fd)}))
		byFD[int32(each.fd)] = each
	}
	var latencies []time.Duration
	var bytes int64
	began := time.Now()
	for _, each := range byFD {
		each.send(nil)
	}
	events := make([]syscall.EpollEvent, count)
	for time.Since(began) < duration {
		n, err := syscall.EpollWait(poll, events, 1000)
		if err == syscall.EINTR {
			continue
		}
		check(err)
		for _, event := range events[:n] {
			each := byFD[event.Fd]
			answer, ok := each.receive()
			if !ok {
				continue
			}
			latencies = append(latencies, time.Since(each.sent))
			bytes += int64(len(answer))
			each.send(answer)
		}
	}
	elapsed := time.Since(began).Seconds()
	for _, each := range byFD {
		syscall.Close(each.fd)
	}
	return summary(latencies, bytes, elapsed)
}

// drain reads the partition once, from its beginning to its end.
func drain(address, topic string, maxBytes int) result {
	c := &connection{fd: connect(address), buffer: make([]byte, maxBytes+64<<10)}
	end := endOffset(address, topic)
	var latencies []time.Duration
	var bytes int64
	began := time.Now()
	for at := int64(0); at < end; {
		asked := time.Now()
		answer := c.ask(fetchFrame(topic, at, maxBytes, 0))
		latencies = append(latencies, time.Since(asked))
		bytes += int64(len(answer))
		at = nextOffset(records(answer), at)
	}
	return summary(latencies, bytes, time.Since(began).Seconds())
}

func summary(latencies []time.Duration, bytes int64, elapsed float64) result {
	slices.Sort(latencies)
	n := len(latencies)
	if n == 0 {
		fail("load: no answer at all")
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return result{Requests: n, Bytes: bytes, Seconds: elapsed, P50: us(latencies[n/2]), P99: us(latencies[n*99/100])}
}

func (c *connection) send(answer []byte) {
	frame := c.next(answer)
	c.got = 0
	c.sent = time.Now()
	for len(frame) > 0 {
		n, err := syscall.Write(c.fd, frame)
		check(err)
		frame = frame[n:]
	}
}

// receive reads the available bytes; it returns true when the response is complete. The buffer holds all of it.
func (c *connection) receive() ([]byte, bool) {
	n, err := syscall.Read(c.fd, c.buffer[c.got:])
	if err == syscall.EINTR {
		return nil, false
	}
	check(err)
	if n == 0 {
		fail("load: the broker closed a connection")
	}
	c.got += n
	if c.got < 4 {
		return nil, false
	}
	size := 4 + int(binary.BigEndian.Uint32(c.buffer))
	if size > len(c.buffer) {
		larger := make([]byte, size)
		copy(larger, c.buffer[:c.got])
		c.buffer = larger
	}
	return c.buffer[:size], c.got == size
}

// latency sends records at a rate; a second connection fetches each as soon as it is available.
func latency(address, topic string, rate int, duration time.Duration) result {
	writer := &connection{fd: connect(address), buffer: make([]byte, 64<<10)}
	end := endOffset(address, topic)
	value := make([]byte, recordBytes)
	var latencies []time.Duration
	sent := make(chan time.Time, 1<<20)
	done := make(chan struct{})
	var bytes int64
	count := int(duration.Seconds() * float64(rate))
	go func() { // a record is a batch of its own, so offsets tell how many have come
		reader := &connection{fd: connect(address), buffer: make([]byte, 1<<20)}
		for at := end; at < end+int64(count); {
			answer := reader.ask(fetchFrame(topic, at, 1<<20, 500))
			now := time.Now()
			bytes += int64(len(answer))
			next := nextOffset(records(answer), at)
			for ; at < next; at++ {
				latencies = append(latencies, now.Sub(<-sent))
			}
		}
		close(done)
	}()
	began := time.Now()
	for i := range count {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		frame := produceFrame(topic, 0, value)
		sent <- time.Now()
		checkProduced(writer.ask(frame))
	}
	<-done
	return summary(latencies, bytes, time.Since(began).Seconds())
}

func (c *connection) ask(frame []byte) []byte {
	c.next = func([]byte) []byte { return frame }
	c.send(nil)
	for {
		if answer, ok := c.receive(); ok {
			return answer
		}
	}
}

// -- frames

func frame(r kmsg.Request) []byte {
	name := "load"
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(name))
	return f.AppendRequest(nil, r, 1)
}

func produceFrame(topic string, partition int32, value []byte) []byte {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch(value)
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis, r.Topics = produceVersion, -1, 30000, []kmsg.ProduceRequestTopic{t}
	return frame(r)
}

func batch(value []byte) []byte {
	record := append([]byte{0, 0, 0, 1}, varint(len(value))...) // attributes, deltas, null key
	record = append(append(record, value...), 0)
	b := kmsg.NewRecordBatch()
	now := time.Now().UnixMilli()
	b.PartitionLeaderEpoch, b.Magic, b.FirstTimestamp, b.MaxTimestamp = -1, 2, now, now
	b.ProducerID, b.ProducerEpoch, b.FirstSequence, b.NumRecords = -1, -1, -1, 1
	b.Records = append(varint(len(record)), record...)
	b.Length = int32(49 + len(b.Records))
	data := b.AppendTo(nil)
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

func varint(n int) []byte { return binary.AppendVarint(nil, int64(n)) }

func checkProduced(answer []byte) {
	if answer == nil {
		return
	}
	r := kmsg.NewPtrProduceResponse()
	r.Version = produceVersion
	check(r.ReadFrom(answer[4+4+1:])) // size, correlation id, tags
	if code := r.Topics[0].Partitions[0].ErrorCode; code != 0 {
		fail(fmt.Sprintf("load: Produce was answered with error %d", code))
	}
}

func fetchFrame(topic string, offset int64, maxBytes, waitMs int) []byte {
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, int32(maxBytes)
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = fetchVersion, int32(waitMs), 1, int32(maxBytes)
	r.SessionEpoch = -1
	r.Topics = []kmsg.FetchRequestTopic{t}
	return frame(r)
}

// fetchFrames walks over the partition once and returns the request of each step except the last, short one.
func fetchFrames(address, topic string, maxBytes int) ([][]byte, int64) {
	c := &connection{fd: connect(address), buffer: make([]byte, 64<<10)}
	end := endOffset(address, topic)
	var frames [][]byte
	var walked int64
	for at := int64(0); at < end; {
		next := fetchFrame(topic, at, maxBytes, 0)
		answer := c.ask(next)
		walked += int64(len(answer))
		at = nextOffset(records(answer), at)
		frames = append(frames, next)
	}
	if len(frames) < 2 {
		fail("load: the topic is too small for such fetches")
	}
	return frames[:len(frames)-1], walked
}

func records(answer []byte) []byte {
	r := kmsg.NewPtrFetchResponse()
	r.Version = fetchVersion
	check(r.ReadFrom(answer[8:]))
	p := r.Topics[0].Partitions[0]
	if r.ErrorCode != 0 || p.ErrorCode != 0 {
		fail(fmt.Sprintf("load: Fetch was answered with errors %d and %d", r.ErrorCode, p.ErrorCode))
	}
	return p.RecordBatches
}

// nextOffset is the offset after the last whole batch.
func nextOffset(data []byte, offset int64) int64 {
	for len(data) >= 61 {
		size := 12 + int(binary.BigEndian.Uint32(data[8:]))
		if size > len(data) {
			break
		}
		offset = int64(binary.BigEndian.Uint64(data)) + int64(binary.BigEndian.Uint32(data[23:])) + 1
		data = data[size:]
	}
	return offset
}

func endOffset(address, topic string) int64 {
	c := &connection{fd: connect(address), buffer: make([]byte, 64<<10)}
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID, r.Topics = 5, -1, []kmsg.ListOffsetsRequestTopic{t}
	answer := kmsg.NewPtrListOffsetsResponse()
	answer.Version = 5
	check(answer.ReadFrom(c.ask(frame(r))[8:]))
	return answer.Topics[0].Partitions[0].Offset
}

// -- sockets

func connect(address string) int {
	var ip [4]byte
	var port int
	_, err := fmt.Sscanf(address, "%d.%d.%d.%d:%d", &ip[0], &ip[1], &ip[2], &ip[3], &port)
	check(err)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(err)
	check(syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: ip}))
	check(syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1))
	return fd
}

func ownCPU() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func check(err error) {
	if err != nil {
		fail("load: " + err.Error())
	}
}

func fail(line string) {
	fmt.Fprintln(os.Stderr, line)
	os.Exit(1)
}
