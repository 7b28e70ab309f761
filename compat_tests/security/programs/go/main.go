// Takes cases from standard input, a JSON object a line, and prints for each what a client said: the client of the
// only argument, "franz-go" or "sarama".
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

type settings struct {
	Servers, Protocol, Mechanism, User, Password, Token, Token_file, Ca, Certificate string
}

type asked struct {
	Id, Topic, Value string
	Timeout_ms       int
	Settings         settings
}

var clients = map[string]func(asked) (string, error){"franz-go": franz, "sarama": throughSarama}

func tlsConfig(given settings) (*tls.Config, error) {
	ca, err := os.ReadFile(given.Ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func main() {
	run := clients[os.Args[1]]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var running sync.WaitGroup
	for lines.Scan() {
		var one asked
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		running.Add(1)
		go func() {
			defer running.Done()
			said := map[string]string{"id": one.Id}
			if value, err := run(one); err != nil {
				said["error"], said["said"] = fmt.Sprintf("%T", err), err.Error()
			} else {
				said["value"] = value
			}
			line, _ := json.Marshal(said)
			fmt.Println(string(line))
		}()
	}
	running.Wait()
}
