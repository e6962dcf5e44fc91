package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lateAfter is the time after its due time at which a request counts as sent late.
const lateAfter = 20 * time.Millisecond

// step is one request of a sequence.
type step struct {
	URL    string            `json:"url"`
	Bodies []json.RawMessage `json:"bodies"` // by turns; "@n" in them is replaced by the number of the sequence
}

type plan struct {
	Steps   []step            `json:"steps"`
	Headers map[string]string `json:"headers"`
	CA      string            `json:"ca"`
	Rate    float64           `json:"rate"`
	Seconds float64           `json:"seconds"`
	Most    int               `json:"most"` // maximum number of sequences, and of connections, at the same time
}

type result struct {
	Completed int            `json:"completed"` // sequences
	Errors    map[string]int `json:"errors"`    // failed requests by message
	Late      int            `json:"late"`      // sequences that began more than lateAfter after their time
	Seconds   float64        `json:"seconds"`
	CPU       float64        `json:"cpu"`       // seconds of CPU time that this program used
	Quantiles []quantiles    `json:"quantiles"` // of each step, in milliseconds, measured by this program
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// load reads a plan from standard input, carries it out, and writes the result to standard output, both as JSON.
func load(arguments []string) error {
	if err := flag.NewFlagSet("load", flag.ExitOnError).Parse(arguments); err != nil {
		return err
	}
	var given plan
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return err
	}
	client, err := newClient(given)
	if err != nil {
		return err
	}
	done := result{Errors: map[string]int{}}
	durations := make([][]time.Duration, len(given.Steps))
	var lock sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, given.Most)
	began := time.Now()
	for number := range int(math.Round(given.Rate * given.Seconds)) {
		due := began.Add(time.Duration(float64(number) / given.Rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			late := time.Since(due) > lateAfter
			taken := make([]time.Duration, 0, len(given.Steps))
			var failure error
			for _, each := range given.Steps {
				sent := time.Now()
				if failure = send(client, each, given.Headers, number); failure != nil {
					break
				}
				taken = append(taken, time.Since(sent))
			}
			lock.Lock()
			defer lock.Unlock()
			if late {
				done.Late++
			}
			if failure != nil {
				done.Errors[failure.Error()]++
				return
			}
			done.Completed++
			for index, each := range taken {
				durations[index] = append(durations[index], each)
			}
		})
	}
	running.Wait()
	done.Seconds = time.Since(began).Seconds()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	done.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	for _, each := range durations {
		done.Quantiles = append(done.Quantiles, summarize(each))
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

func newClient(given plan) (*http.Client, error) {
	authority, err := os.ReadFile(given.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate in " + given.CA)
	}
	// A configuration of TLS without ForceAttemptHTTP2 means HTTP/1.1.
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxConnsPerHost:     given.Most,
		MaxIdleConnsPerHost: given.Most,
	}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

func send(client *http.Client, each step, headers map[string]string, number int) error {
	body := bytes.ReplaceAll(each.Bodies[number%len(each.Bodies)], []byte("@n"), []byte(strconv.Itoa(number)))
	request, err := http.NewRequest(http.MethodPost, each.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		shown := string(answer[:min(len(answer), 200)])
		return fmt.Errorf("%d %s", response.StatusCode, strings.ReplaceAll(shown, "-"+strconv.Itoa(number), "-@n"))
	}
	return nil
}

func summarize(durations []time.Duration) quantiles {
	if len(durations) == 0 {
		return quantiles{}
	}
	slices.Sort(durations)
	at := func(share float64) float64 {
		index := min(int(share*float64(len(durations))), len(durations)-1)
		return float64(durations[index].Microseconds()) / 1000
	}
	return quantiles{P50: at(0.5), P99: at(0.99), Max: at(1)}
}
