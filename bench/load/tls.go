// The same loads over TLS: a goroutine for each connection, with Go's own TLS.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

func tlsConfig(authority string) *tls.Config {
	pem, err := os.ReadFile(authority)
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		fail("no certificate in " + authority)
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// runTLS keeps one request in flight on each connection until the time is over.
func runTLS(address, authority string, count int, duration time.Duration, make_ func(i int) request) result {
	config := tlsConfig(authority)
	connections := make([]*tls.Conn, count)
	for i := range connections {
		connection, err := tls.Dial("tcp", address, config)
		check(err)
		connections[i] = connection
	}
	began := time.Now()
	found := together(count, func(i int) (bytes int64, latencies []time.Duration) {
		connection, next := connections[i], make_(i)
		buffer := make([]byte, 64<<10)
		var answer []byte
		for time.Since(began) < duration {
			sent := time.Now()
			_, err := connection.Write(next(answer))
			check(err)
			_, err = io.ReadFull(connection, buffer[:4])
			check(err)
			size := int(binary.BigEndian.Uint32(buffer))
			if len(buffer) < 4+size {
				buffer = append(make([]byte, 0, 4+size), buffer[:4]...)[:4+size]
			}
			_, err = io.ReadFull(connection, buffer[4:4+size])
			check(err)
			answer = buffer[:4+size]
			bytes += int64(4 + size)
			latencies = append(latencies, time.Since(sent))
		}
		connection.Close()
		return
	})
	found.Seconds = time.Since(began).Seconds()
	return found
}

// handshakes makes and closes connections one after the other, `count` at a time.
func handshakes(address, authority string, count int, duration time.Duration) result {
	config := tlsConfig(authority)
	began := time.Now()
	found := together(count, func(int) (_ int64, latencies []time.Duration) {
		for time.Since(began) < duration {
			sent := time.Now()
			connection, err := tls.Dial("tcp", address, config)
			check(err)
			latencies = append(latencies, time.Since(sent))
			connection.Close()
		}
		return
	})
	found.Seconds = time.Since(began).Seconds()
	return found
}

// together adds up what several do at the same time.
func together(count int, work func(i int) (int64, []time.Duration)) result {
	var found result
	var all []time.Duration
	var lock sync.Mutex
	var group sync.WaitGroup
	for i := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			bytes, latencies := work(i)
			lock.Lock()
			defer lock.Unlock()
			found.Bytes += bytes
			all = append(all, latencies...)
		}()
	}
	group.Wait()
	slices.Sort(all)
	found.Requests = len(all)
	found.P50 = float64(all[len(all)/2].Nanoseconds()) / 1e3
	found.P99 = float64(all[len(all)*99/100].Nanoseconds()) / 1e3
	return found
}
