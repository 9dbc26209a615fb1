// Package lines has the code that the drivers in Go share: a JSON question a line, a JSON answer a line.
//
// tests/clients/driver.py describes the protocol.
package lines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// Timeout ends what takes too long.
const Timeout = 30 * time.Second

// Question is any of them; what it does not have is zero.
type Question struct {
	Do        string            `json:"do"`
	Address   string            `json:"address"`
	Topic     string            `json:"topic"`
	Group     string            `json:"group"`
	Config    map[string]string `json:"config"`
	Records   []Sent            `json:"records"`
	Starts    map[string]int64  `json:"starts"`
	Ends      map[string]int64  `json:"ends"`
	Partition int32             `json:"partition"`
	Timestamp int64             `json:"timestamp"`
	TimeoutMs int64             `json:"timeout_ms"`
	ID        string            `json:"id"`
	Commit    bool              `json:"commit"`
	Positions bool              `json:"positions"`
}

// PollTimeout is how long a poll may wait.
func (q *Question) PollTimeout() time.Duration { return time.Duration(q.TimeoutMs) * time.Millisecond }

// Range calls for each partition to be read with its first offset and its end.
func (q *Question) Range(visit func(partition int32, start, end int64) error) error {
	for name, end := range q.Ends {
		partition, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		if err := visit(int32(partition), q.Starts[name], end); err != nil {
			return err
		}
	}
	return nil
}

// Header of a record.
type Header struct {
	Name  string
	Value []byte
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

// Sent is a record that shall be produced.
type Sent struct {
	Partition int32
	Timestamp *int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

func (s *Sent) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.Partition, &s.Timestamp, &s.Key, &s.Value, &s.Headers})
}

// Time of a record; zero leaves it to the producer.
func (s *Sent) Time() time.Time {
	if s.Timestamp == nil {
		return time.Time{}
	}
	return time.UnixMilli(*s.Timestamp)
}

// Row is a record that was read.
type Row struct {
	Partition int32
	Offset    int64
	Time      time.Time
	Key       []byte
	Value     []byte
	Headers   []Header
}

func (r Row) MarshalJSON() ([]byte, error) {
	headers := r.Headers
	if headers == nil {
		headers = []Header{}
	}
	return json.Marshal([]any{r.Partition, r.Offset, r.Time.UnixMilli(), r.Key, r.Value, headers})
}

// Polled is the answer to a poll.
type Polled struct {
	Rows []Row `json:"rows"`
}

// Hello is the answer to hello.
type Hello struct {
	Version   string            `json:"version"`
	Codecs    []string          `json:"codecs"`
	Protocols []string          `json:"protocols"`
	Cannot    map[string]string `json:"cannot"`
}

// Version of a module that the program was built with.
func Version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return ""
}

// Collect reads rows until there are so many. next waits for one, up to the timeout it is given.
func Collect(wait time.Duration, next func(time.Duration) (Row, bool, error)) (Polled, error) {
	polled := Polled{Rows: []Row{}}
	for len(polled.Rows) < 500 {
		row, found, err := next(wait)
		if err != nil || !found {
			return polled, err
		}
		polled.Rows = append(polled.Rows, row)
		wait = 0
	}
	return polled, nil
}

// Serve answers until stdin ends.
func Serve(answers map[string]func(*Question) (any, error)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := out.Encode(answer(answers, line)); err != nil {
			return
		}
	}
}

func answer(answers map[string]func(*Question) (any, error), line []byte) map[string]any {
	var question Question
	if err := json.Unmarshal(line, &question); err != nil {
		return map[string]any{"error": err.Error()}
	}
	work, known := answers[question.Do]
	if !known {
		return map[string]any{"error": fmt.Sprintf("no %s", question.Do)}
	}
	result, err := work(&question)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"ok": result}
}
