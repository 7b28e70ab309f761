// Takes cases from standard input, a JSON object a line, and prints for each what a client said: the client of the
// only argument, "franz-go" or "sarama". A case that is kept is one record, sent by a producer that lasts for all such
// cases of its topic; what is said is how many connections that producer has opened.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

type settings struct {
	Servers, Protocol, Mechanism, User, Password, Token, Token_file, Ca, Certificate, Bare string
}

type asked struct {
	Id, Topic, Value string
	Timeout_ms       int
	Kept             bool
	Settings         settings
}

type client struct {
	run func(asked) (string, error)
	// Makes a producer that opens its connections by the dialer; what it returns sends a value.
	keep func(asked, *dialer) (func(string) error, error)
}

var clients = map[string]client{"franz-go": {franz, keepFranz}, "sarama": {throughSarama, keepSarama}}

// Counts the connections that it opens.
type dialer struct{ opened atomic.Int64 }

func (dialer *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer.opened.Add(1)
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (dialer *dialer) Dial(network, address string) (net.Conn, error) {
	return dialer.DialContext(context.Background(), network, address)
}

// Producers by topic.
type keeper struct {
	client client
	lock   sync.Mutex
	kept   map[string]producer
}

type producer struct {
	send   func(string) error
	dialer *dialer
}

func (keeper *keeper) send(one asked) (string, error) {
	keeper.lock.Lock()
	defer keeper.lock.Unlock()
	found, there := keeper.kept[one.Topic]
	if !there {
		found.dialer = &dialer{}
		var err error
		if found.send, err = keeper.client.keep(one, found.dialer); err != nil {
			return "", err
		}
		keeper.kept[one.Topic] = found
	}
	if err := found.send(one.Value); err != nil {
		return "", err
	}
	return strconv.FormatInt(found.dialer.opened.Load(), 10), nil
}

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
	client := clients[os.Args[1]]
	keeper := keeper{client: client, kept: map[string]producer{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var running sync.WaitGroup
	for lines.Scan() {
		var one asked
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		run := client.run
		if one.Kept {
			run = keeper.send
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
