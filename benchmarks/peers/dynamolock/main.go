// dynamolock as published, as benchmarks/peer_locks.py drives it. Arguments: the endpoint, the table, and
//
//   - cycles N: says ready, waits for a line, acquires and releases N times; the median in microseconds;
//   - crowd CLIENTS WORK_MS POLL_MS SETTLE_MS COUNTED_MS: clients that take one lock again and again; first the moments
//     between which it counts, then of each wait when it began, twice, and when the lock was granted, or 0;
//   - hold LEASE_MS: says held, and renews until it is killed;
//   - wait LEASE_MS POLL_MS: says asks, then held.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

const (
	lockName = "lock"
	long     = time.Hour
)

type peer struct {
	dynamodb *dynamodb.Client
	table    string
}

type wait struct {
	asked   int64
	granted atomic.Int64
}

func main() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 200
	p := peer{
		dynamodb: dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String(os.Args[1]),
			Region:       "us-east-1",
			HTTPClient:   &http.Client{Transport: transport},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "test", SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
			}),
		}),
		table: os.Args[2],
	}
	var numbers []time.Duration
	for _, each := range os.Args[4:] {
		number, err := strconv.Atoi(each)
		check(err)
		numbers = append(numbers, time.Duration(number))
	}
	switch os.Args[3] {
	case "cycles":
		p.cycles(int(numbers[0]))
	case "crowd":
		ms := time.Millisecond
		p.crowd(int(numbers[0]), numbers[1]*ms, numbers[2]*ms, numbers[3]*ms, numbers[4]*ms)
	case "hold":
		p.acquire(p.client(numbers[0]*time.Millisecond), 100*time.Millisecond)
		fmt.Println("held")
		time.Sleep(long)
	default:
		client := p.client(numbers[0] * time.Millisecond)
		fmt.Println("asks")
		p.acquire(client, numbers[1]*time.Millisecond)
		fmt.Println("held")
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (p peer) client(lease time.Duration) *dynamolock.Client {
	client, err := dynamolock.New(
		p.dynamodb, p.table, dynamolock.WithLeaseDuration(lease), dynamolock.WithHeartbeatPeriod(lease/4))
	check(err)
	return client
}

func (p peer) acquire(client *dynamolock.Client, poll time.Duration) *dynamolock.Lock {
	held, err := client.AcquireLock(
		lockName, dynamolock.WithRefreshPeriod(poll), dynamolock.WithAdditionalTimeToWaitForLock(long))
	check(err)
	return held
}

func release(client *dynamolock.Client, held *dynamolock.Lock) {
	_, err := client.ReleaseLock(held)
	check(err)
}

func (p peer) cycles(count int) {
	client := p.client(20 * time.Second)
	for range 300 {
		release(client, p.acquire(client, time.Second))
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	took := make([]time.Duration, count)
	for number := range took {
		began := time.Now()
		release(client, p.acquire(client, time.Second))
		took[number] = time.Since(began)
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	fmt.Println(took[count/2].Microseconds())
}

func (p peer) crowd(clients int, work, poll, settle, counted time.Duration) {
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) + 1 }
	var mutex sync.Mutex
	var waits []*wait
	for range clients {
		client := p.client(20 * time.Second)
		go func() {
			for {
				one := &wait{asked: now()}
				mutex.Lock()
				waits = append(waits, one)
				mutex.Unlock()
				held := p.acquire(client, poll)
				one.granted.Store(now())
				time.Sleep(work)
				release(client, held)
			}
		}()
	}
	time.Sleep(settle)
	began := now()
	time.Sleep(counted)
	fmt.Println(began, now())
	mutex.Lock()
	defer mutex.Unlock()
	for _, one := range waits {
		fmt.Println(one.asked, one.asked, one.granted.Load())
	}
}
