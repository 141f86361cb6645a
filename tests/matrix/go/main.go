// Reads cells, one in a line, tries all of them at once with franz-go, and writes how each ended.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	topic     = "matrix"
	separator = "\x1f"
	patience  = 20 * time.Second
)

func main() {
	var all sync.WaitGroup
	var mutex sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), separator)
		all.Add(1)
		go func() {
			defer all.Done()
			outcome := attempt(parts)
			mutex.Lock()
			defer mutex.Unlock()
			fmt.Println(parts[0] + separator + strings.ReplaceAll(outcome, "\n", " "))
		}()
	}
	all.Wait()
}

func attempt(parts []string) string {
	seconds, _ := strconv.ParseFloat(parts[1], 64)
	options, err := configure(parts[2:])
	if err != nil {
		return "out\t" + err.Error()
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "out\t" + err.Error()
	}
	defer client.Close()
	first := make([]byte, 16)
	rand.Read(first)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return reason(err) + "\t" + err.Error()
	}
	written, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: first}).First()
	if err != nil {
		return reason(err) + "\t" + err.Error()
	}
	for ends := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(ends); {
		if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: first}).FirstErr(); err != nil {
			return "out\t" + err.Error()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return read(options, written.Offset, first)
}

func read(options []kgo.Opt, offset int64, value []byte) string {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	if err != nil {
		return "out\t" + err.Error()
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, record := range consumer.PollFetches(ctx).Records() {
		if bytes.Equal(record.Value, value) {
			return "in"
		}
	}
	return "out\tthe record was not read"
}

func configure(parts []string) ([]kgo.Opt, error) {
	address, mechanism, user, secret, ca, certificate, key := parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]
	options := []kgo.Opt{kgo.SeedBrokers(address), kgo.RequestRetries(0), kgo.RetryTimeout(patience)}
	switch mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: secret}.AsMechanism()))
	}
	if ca == "" {
		return options, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return append(options, kgo.DialTLSConfig(config)), nil
}

func reason(err error) string {
	var failed *tls.CertificateVerificationError
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "login"
	case errors.As(err, &failed):
		return "tls"
	}
	return "out"
}
