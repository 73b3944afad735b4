// Package broker is the NATS side of a host: the embedded server, the
// connection, and the streams that a folder of functions declares.
package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// The ways in which an embedded server cannot start.
var (
	// ErrAddressTaken says that something listens on the address already.
	ErrAddressTaken = errors.New("address is in use")
	// ErrStoreTaken says that another process uses the store directory.
	ErrStoreTaken = errors.New("store directory is in use")
)

// Sync is how often the embedded server has the system write its streams to the
// disk: an interval, or SyncAlways before each acknowledgement. What was
// acknowledged since the last time is lost when the machine loses power; when
// only the process dies, nothing is.
type Sync time.Duration

const (
	// SyncAlways loses nothing and costs a write to the disk for each message.
	SyncAlways Sync = -1
	// DefaultSync is seldom enough to cost nothing that can be measured.
	DefaultSync = Sync(time.Second)
)

// ParseSync reads always, or an interval.
func ParseSync(s string) (Sync, error) {
	if s == "always" {
		return SyncAlways, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return 0, fmt.Errorf("sync %q is neither always nor an interval from 100ms to 1h, such as 1s", s)
	}
	return Sync(d), nil
}

// String writes what ParseSync reads.
func (s Sync) String() string {
	if s == SyncAlways {
		return "always"
	}
	return time.Duration(s).String()
}

// readyTimeout bounds the server's start, recovery of its streams included.
const readyTimeout = 60 * time.Second

// Server is an embedded NATS server with JetStream. Close must be called.
type Server struct {
	server *server.Server
	lock   *os.File
}

// Start starts a server that listens on an address (host:port, port 0 for any)
// and stores under a directory, which it locks.
func Start(listen, dir string, sync Sync, log zerolog.Logger) (*Server, error) {
	host, portText, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("parse listen address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("parse listen address: %q is not a port", portText)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	} else if err := probe(listen); err != nil {
		return nil, err
	}
	lock, err := LockFolder(dir)
	if err != nil {
		return nil, err
	}
	s, err := start(host, port, dir, sync, log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Server{server: s, lock: lock}, nil
}

// probe finds a taken port before the server does, whose own error comes late
// and only in its log.
func probe(listen string) error {
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w: a NATS server or another pelton runs there; join it with --nats nats://%s, or choose another port with --listen", listen, ErrAddressTaken, listen)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	return l.Close()
}

// lockFolder takes the folder for this process: the server itself does not
// notice a second one, and the two would spoil each other's streams.
func LockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder: %w", err)
	}
	path := filepath.Join(dir, "pelton.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w: another pelton runs on it; stop that one or choose another --data", dir, ErrStoreTaken), f.Close())
	}
	return f, nil
}

func start(host string, port int, dir string, sync Sync, log zerolog.Logger) (*server.Server, error) {
	options := &server.Options{
		ServerName: "pelton",
		Host:       host, Port: port,
		JetStream: true, StoreDir: dir,
		SyncAlways: sync == SyncAlways, SyncInterval: time.Duration(max(sync, 0)),
		NoSigs: true, // it would end the process on its own
		NoLog:  false,
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("set up nats server: %w", err)
	}
	s.SetLoggerV2(serverLog{log.With().Str("component", "nats").Logger()}, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("start nats server: not ready after %s", readyTimeout)
	}
	return s, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.server.ClientURL() }

// Connect connects to the server without a network.
func (s *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(options, nats.InProcessServer(s.server))...)
}

// Close stops the server and gives the directory up.
func (s *Server) Close() error {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return s.lock.Close()
}

// serverLog writes the server's log as ours. Its notices are of no interest to
// a user of Pelton.
type serverLog struct{ log zerolog.Logger }

func (l serverLog) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l serverLog) Warnf(format string, v ...any)   { l.log.Warn().Msgf(format, v...) }
func (l serverLog) Errorf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }
func (l serverLog) Fatalf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }
func (l serverLog) Debugf(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }
func (l serverLog) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }
