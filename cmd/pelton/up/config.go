// Package up is one running host, wired together: the embedded server or a
// connection, the engine, the functions of a folder, and what others see of
// them.
package up

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/engine"
)

// Version is Pelton's own; it must be a semantic version for nats micro.
const Version = "0.1.0"

// DefaultGrace is how long handlers may still run when the host stops.
const DefaultGrace = 10 * time.Second

// Config is how a host is set up.
type Config struct {
	Folder  string // of the functions
	Data    string // databases, blobs, the compile cache and the host's id
	Store   string // of the embedded server's streams; below Data when empty
	Name    string // the host's id; made once and kept when empty
	Region  string
	Listen  string        // of the embedded server, unless URL is set
	Sync    broker.Sync   // of the embedded server; broker.DefaultSync when 0
	URL     string        // of a NATS cluster
	NATS    []nats.Option // credentials and TLS for it
	API     broker.API    // its JetStream
	Cache   string        // of compiled code; below Data when empty
	Grace   time.Duration
	Secrets func(name string) (string, error)
	Place   *manifests.Host // what logical names are here; nil leaves all below Data
	Engine  engine.Config
	Log     zerolog.Logger
}

// hostPattern is what a host's id can be: one token of a subject.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// complete checks the configuration and fills in what follows from the rest.
func (c *Config) complete() error {
	if c.Data == "" {
		c.Data = "pelton-data"
	}
	if c.Store == "" {
		c.Store = filepath.Join(c.Data, "nats")
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(c.Data, "cache")
	}
	if c.Sync == 0 {
		c.Sync = broker.DefaultSync
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Place == nil {
		c.Place = &manifests.Host{}
	}
	if c.Secrets == nil {
		c.Secrets = EnvSecrets
		if dir := c.Place.Secrets.Dir; dir != "" {
			c.Secrets = FileSecrets(dir)
		}
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if c.Name == "" {
		id, err := hostID(c.Data)
		if err != nil {
			return err
		}
		c.Name = id
	}
	if !hostPattern.MatchString(c.Name) {
		return fmt.Errorf("host name %q has something other than letters, digits, _ and -", c.Name)
	}
	if c.Region != "" && !hostPattern.MatchString(c.Region) {
		return fmt.Errorf("region %q has something other than letters, digits, _ and -", c.Region)
	}
	return nil
}

// hostID reads the id that was made for this data directory, or makes it. A
// container's host name would not do: it is another after each restart.
func hostID(data string) (string, error) {
	path := filepath.Join(data, "host-id")
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read host id: %w", err)
	}
	random := make([]byte, 4)
	rand.Read(random) // never fails, see crypto/rand
	id := "h-" + hex.EncodeToString(random)
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep host id: %w", err)
	}
	return id, nil
}

// EnvSecrets looks secrets up in the environment: cf_token is
// PELTON_SECRET_CF_TOKEN.
func EnvSecrets(name string) (string, error) {
	key := "PELTON_SECRET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if v, ok := os.LookupEnv(key); ok {
		return v, nil
	}
	return "", fmt.Errorf("secret %s is not set; give it in the environment as %s", name, key)
}

// FileSecrets looks secrets up in a folder, a file each, and what has none there in
// the environment.
func FileSecrets(dir string) func(string) (string, error) {
	return func(name string) (string, error) {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return "", fmt.Errorf("secret %q cannot be a file's name", name)
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			if v, err := EnvSecrets(name); err == nil {
				return v, nil
			}
		}
		if err != nil {
			return "", fmt.Errorf("read secret %s: %w", name, err)
		}
		return strings.TrimSpace(string(b)), nil
	}
}
