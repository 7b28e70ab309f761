// Commits two transactions; the second commit's response is lost. Arguments: bootstrap servers, control API.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func ask(method, path, body string) string {
	request, err := http.NewRequest(method, "http://"+os.Args[2]+path, strings.NewReader(body))
	check(err)
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode >= 400 {
		panic(string(text))
	}
	return string(text)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	ask("POST", "/topics", `{"orders": {"partitions": 1, "config": {"retention.ms": 86400000}}}`)
	ask("POST", "/faults", `{"on": "EndTxn", "transactional_id": "app", "nth": 2, "drop_response": "close"}`)

	producer, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.TransactionalID("app"))
	check(err)
	for _, value := range []string{"first", "second"} {
		check(producer.BeginTransaction())
		check(producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr())
		if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
			fmt.Println("failed", value, err)
		} else {
			fmt.Println("committed", value)
		}
	}
	producer.Close()
	fmt.Println("rules", ask("GET", "/faults", ""))
	fmt.Println("requests", ask("GET", "/requests?api=EndTxn", ""))
	fmt.Println("records", ask("GET", "/topics/orders/records?isolation=read_committed", ""))
	fmt.Println("moved", ask("POST", "/clock/advance", `{"days": 7}`))
	fmt.Println("left", ask("GET", "/topics/orders/records?isolation=read_committed", ""))
}
