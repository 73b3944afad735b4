package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// asServer has the test's own binary be a node of a cluster; see node.
const asServer = "PELTON_TEST_AS_SERVER"

// serve runs a node: its number, its folder, and the ports of all nodes, clients'
// and then routes', with spaces between.
func serve(spec string) {
	f := strings.Fields(spec)
	i, _ := strconv.Atoi(f[0])
	ports := f[2:]
	port := func(n int) int { p, _ := strconv.Atoi(ports[n]); return p }
	routes := make([]string, 3)
	for n := range routes {
		routes[n] = "nats://127.0.0.1:" + ports[3+n]
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "n" + f[0], Host: "127.0.0.1", Port: port(i), JetStream: true, StoreDir: f[1], NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port(3 + i), NoAdvertise: true},
		Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	s.WaitForShutdown()
}

// cluster is three nodes in processes of their own.
type cluster struct {
	t     *testing.T
	ports []string
	dirs  []string
	nodes [3]*exec.Cmd
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for range 6 {
		_, port, err := net.SplitHostPort(freePort(t))
		if err != nil {
			t.Fatal(err)
		}
		c.ports = append(c.ports, port)
	}
	for i := range c.nodes {
		c.dirs = append(c.dirs, t.TempDir())
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

func (c *cluster) start(i int) {
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[i] = exec.Command(exe)
	c.nodes[i].Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", asServer, i, c.dirs[i], strings.Join(c.ports, " ")))
	c.nodes[i].Stderr = os.Stderr
	if err := c.nodes[i].Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kill(i int) {
	c.nodes[i].Process.Kill()
	c.nodes[i].Wait()
}

func (c *cluster) address(i int) string { return "127.0.0.1:" + c.ports[i] }

// proxy is what one host reaches the cluster through: it can be slow, and cut.
type proxy struct {
	listener net.Listener
	target   func() string
	delay    atomic.Int64 // of each piece, nanoseconds

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newProxy(t *testing.T, target func() string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	go p.accept()
	t.Cleanup(func() { l.Close(); p.cut() })
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.DialTimeout("tcp", p.target(), time.Second)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[upstream] = struct{}{}, struct{}{}
		p.mu.Unlock()
		go p.pipe(client, upstream)
		go p.pipe(upstream, client)
	}
}

func (p *proxy) pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(p.delay.Load())) // the network
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// nemesis is what goes wrong, in an order that follows from a seed.
type nemesis struct {
	t       *testing.T
	random  *rand.Rand
	cluster *cluster
	ledger  *ledger
	hosts   [2]*host
	proxies [2]*proxy
	story   []string
}

// TestNemesis has hosts and servers killed, frozen, cut off and slowed, leaders
// change and durables removed, while messages are published; then the books are
// right. PELTON_SEEDS says how many stories, PELTON_SEED with which to begin.
func TestNemesis(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	first := number("PELTON_SEED", 1)
	for seed := first; seed < first+number("PELTON_SEEDS", 1); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runNemesis(t, uint64(seed), time.Duration(number("PELTON_STORY", 20))*time.Second) })
	}
}

func runNemesis(t *testing.T, seed uint64, lasts time.Duration) {
	n := &nemesis{t: t, random: rand.New(rand.NewPCG(seed, 0)), cluster: newCluster(t), ledger: newLedger(t, 3)}
	l := n.ledger
	log := logFile(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(n.story, ", "))
		}
	})
	all := []string{}
	for i := range n.cluster.nodes {
		all = append(all, "nats://"+n.cluster.address(i))
	}
	l.connect(strings.Join(all, ","))
	until(t, "the cluster has a leader", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.js.AccountInfo(ctx)
		return err == nil
	})
	for i, name := range []string{"a", "b"} {
		turn := i
		n.proxies[i] = newProxy(t, func() string { turn++; return n.cluster.address(turn % 3) })
		n.hosts[i] = l.host(log, "--nats", "nats://"+n.proxies[i].listener.Addr().String(), "--name", name)
		if i > 0 { // the state is the first one's
			n.hosts[i].args = append(n.hosts[i].args, "--data", t.TempDir())
		}
		n.hosts[i].start()
		t.Cleanup(n.hosts[i].kill)
		if i == 0 {
			until(t, "the streams are there", 60*time.Second, func() bool { return l.exists("WORK") && l.exists("DONE") && l.exists("RELAYED") })
			l.publish(1)
			until(t, "the first host has the state", 60*time.Second, func() bool { return l.count("SELECT count(*) FROM rows") == 1 })
		}
	}
	end := time.Now().Add(lasts)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for i := 2; time.Now().Before(end); i++ {
			l.publish(i)
			time.Sleep(5 * time.Millisecond) // a busy stream, not a flood
		}
	})
	for time.Now().Before(end) {
		n.strike()
	}
	publishing.Wait()
	l.settled(90 * time.Second)
	l.check()
	t.Logf("seed %d: %d messages; %s", seed, len(l.good)+len(l.bad)+len(l.exits), strings.Join(n.story, ", "))
}

// strike does one bad thing, and lets the world come to itself for a moment.
func (n *nemesis) strike() {
	i, node := n.random.IntN(2), n.random.IntN(3)
	h, p := n.hosts[i], n.proxies[i]
	some := func(most int) time.Duration { return time.Duration(n.random.IntN(most*1000)) * time.Millisecond }
	tell := func(format string, args ...any) { n.story = append(n.story, fmt.Sprintf(format, args...)) }
	switch n.random.IntN(9) {
	case 0:
		tell("kill host %d", i)
		h.kill()
		time.Sleep(some(1))
		h.start()
	case 1:
		pause := some(6)
		tell("freeze host %d for %s", i, pause)
		h.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause)
		h.cmd.Process.Signal(syscall.SIGCONT)
	case 2:
		tell("kill node %d", node)
		n.cluster.kill(node)
		time.Sleep(some(2))
		n.cluster.start(node)
	case 3:
		pause := some(4)
		tell("freeze node %d for %s", node, pause)
		n.cluster.nodes[node].Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause)
		n.cluster.nodes[node].Process.Signal(syscall.SIGCONT)
	case 4:
		tell("cut host %d off", i)
		p.cut()
	case 5:
		tell("slow host %d down", i)
		p.delay.Store(int64(some(1) / 5))
		time.Sleep(some(3))
		p.delay.Store(0)
	case 6:
		tell("stream leader steps down")
		n.ask("$JS.API.STREAM.LEADER.STEPDOWN.WORK")
	case 7:
		durable := durables[n.random.IntN(len(durables))]
		if n.random.IntN(3) == 0 {
			tell("delete durable %s", durable)
			n.ask("$JS.API.CONSUMER.DELETE.WORK." + durable)
		} else {
			tell("leader of durable %s steps down", durable)
			n.ask("$JS.API.CONSUMER.LEADER.STEPDOWN.WORK." + durable)
		}
	case 8:
		tell("stop host %d in order", i)
		h.cmd.Process.Signal(syscall.SIGTERM)
		h.cmd.Wait()
		h.start()
	}
	time.Sleep(some(2)) // the pace of the story
}

// ask asks the server for something that it may or may not do.
func (n *nemesis) ask(subject string) {
	n.ledger.nc.Request(subject, nil, time.Second)
}
