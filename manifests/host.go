package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// HostFile is the name of the operator's file, by convention.
const HostFile = "pelton.yaml"

// Host is what the logical names of manifests are on one host: the content of a
// pelton.yaml. What it does not name lies below the data folder. Paths are
// relative to the file's folder.
type Host struct {
	Databases map[string]DatabasePlace `json:"databases,omitempty"`
	Blobs     map[string]BlobPlace     `json:"blobs,omitempty"`
	Secrets   SecretsPlace             `json:"secrets,omitzero"`
	Networks  Networks                 `json:"networks,omitzero"`
}

// DatabasePlace is where a database is.
type DatabasePlace struct {
	File           string `json:"file" jsonschema:"required"`
	ForeignWriters bool   `json:"foreign_writers,omitempty"` // another program writes to it too
}

// BlobPlace is where a blob store is: one of dir, bucket and s3, or the host's own
// folder when there is only a quota.
type BlobPlace struct {
	Dir    string   `json:"dir,omitempty"`
	Quota  Size     `json:"quota,omitempty"`  // of a folder's blobs together; buckets have limits of their own
	Bucket string   `json:"bucket,omitempty"` // a NATS object store
	S3     *S3Place `json:"s3,omitempty"`
}

// S3Place is a bucket of an S3 service. The keys are secrets, by their names.
type S3Place struct {
	Endpoint  string `json:"endpoint" jsonschema:"required"` // https://host[:port]
	Bucket    string `json:"bucket" jsonschema:"required"`
	Region    string `json:"region,omitempty"`
	Prefix    string `json:"prefix,omitempty"`     // in front of every key
	AccessKey string `json:"access_key,omitempty"` // the secret's name
	SecretKey string `json:"secret_key,omitempty"` // the secret's name
}

// SecretsPlace is where secrets are: PELTON_SECRET_<NAME> in the environment, and
// before that a folder with one file each.
type SecretsPlace struct {
	Dir string `json:"dir,omitempty"`
}

// Networks are the addresses beyond the public ones that named origins may have.
type Networks struct {
	Allow []string `json:"allow,omitempty"` // in CIDR notation
}

// DecodeHost reads a pelton.yaml strictly. The error is a [Problems].
func DecodeHost(file string, src []byte) (*Host, error) {
	d, err := parseDocument(file, src)
	if err != nil {
		return nil, err
	}
	h := &Host{}
	if err := d.decode(h); err != nil {
		return nil, err
	}
	validateHost(h, d)
	if err := d.problems(); err != nil {
		return nil, err
	}
	h.resolve(filepath.Dir(file))
	return h, nil
}

// LoadHost reads the operator's file. "" is none.
func LoadHost(path string) (*Host, error) {
	if path == "" {
		return &Host{}, nil
	}
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: it does not exist; leave --config out, or make it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the host's file: %w", err)
	}
	return DecodeHost(path, src)
}

// resolve makes the paths independent of the folder that the host is started in.
func (h *Host) resolve(dir string) {
	at := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	for name, p := range h.Databases {
		at(&p.File)
		h.Databases[name] = p
	}
	for name, p := range h.Blobs {
		at(&p.Dir)
		h.Blobs[name] = p
	}
	at(&h.Secrets.Dir)
}

// Prefixes returns the networks that are allowed.
func (n Networks) Prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range n.Allow {
		if p, err := netip.ParsePrefix(text); err == nil { // it was validated
			all = append(all, p.Masked())
		}
	}
	return all
}

func validateHost(h *Host, d *document) {
	for name, p := range h.Databases {
		at := "databases." + name
		logicalName(d, at, name)
		if p.File == "" {
			d.fail(at+".file", "is missing", "name the SQLite file, such as /srv/app/app.db")
		}
	}
	for name, p := range h.Blobs {
		at := "blobs." + name
		logicalName(d, at, name)
		validateBlobPlace(p, at, d)
	}
	for i, text := range h.Networks.Allow {
		at := fmt.Sprintf("networks.allow[%d]", i)
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			d.fail(at, fmt.Sprintf("%q is not a network", text), "write it as CIDR, such as 10.2.0.0/16 or 127.0.0.1/32")
		case p.Overlaps(linkLocal), p.Overlaps(metadata6):
			d.fail(at, fmt.Sprintf("%s holds addresses of a cloud's metadata service", text), "name a smaller network: those are never allowed")
		}
	}
}

// The networks of metadata services, whose answers are credentials.
var (
	linkLocal = netip.MustParsePrefix("169.254.0.0/16")
	metadata6 = netip.MustParsePrefix("fd00:ec2::254/128")
)

// bucketPattern is what an S3 bucket can be called.
var bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func validateBlobPlace(p BlobPlace, at string, d *document) {
	places := 0
	for _, set := range []bool{p.Dir != "", p.Bucket != "", p.S3 != nil} {
		if set {
			places++
		}
	}
	if p.Quota > 0 && (p.Bucket != "" || p.S3 != nil) {
		d.fail(at+".quota", "is for folders", "limit a NATS bucket with: nats object add --max-bucket-size; an S3 bucket at its service")
	}
	if places > 1 || places == 0 && p.Quota == 0 {
		d.fail(at, fmt.Sprintf("names %d places", places), "set exactly one of dir, bucket and s3")
		return
	}
	if p.Bucket != "" && !streamPattern.MatchString(p.Bucket) {
		d.fail(at+".bucket", fmt.Sprintf("%q cannot be a bucket's name", p.Bucket), "use letters, digits, _ and -, such as THUMBS")
	}
	if p.S3 == nil {
		return
	}
	u, err := url.Parse(p.S3.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Path != "" || u.User != nil {
		d.fail(at+".s3.endpoint", fmt.Sprintf("%q is not an endpoint", p.S3.Endpoint), "write scheme, host and port, such as https://s3.eu-central-1.amazonaws.com")
	}
	if !bucketPattern.MatchString(p.S3.Bucket) {
		d.fail(at+".s3.bucket", fmt.Sprintf("%q cannot be a bucket's name", p.S3.Bucket), "name the bucket, such as thumbs")
	}
	if (p.S3.AccessKey == "") != (p.S3.SecretKey == "") {
		d.fail(at+".s3", "has one of access_key and secret_key", "name the secrets of both, or of neither for a bucket that is open")
	}
}

// Missing says what a manifest needs of a host and the host does not have. secret
// looks a secret up.
func (h *Host) Missing(m *Manifest, secret func(name string) error) []string {
	var missing []string
	note := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	for _, g := range m.Grants.HTTP {
		for _, name := range secretsOf(g) {
			if err := secret(name); err != nil {
				note("%v", err)
			}
		}
		if a, err := netip.ParseAddr(originHost(g.Origin)); err == nil && !h.reaches(a) {
			note("origin %s is not a public address, and networks.allow of %s does not have it", g.Origin, HostFile)
		}
	}
	for _, name := range sortedKeys(m.Grants.SQLite) {
		place, ok := h.Databases[name]
		if _, err := os.Stat(filepath.Dir(place.File)); ok && err != nil {
			note("the folder of database %s, %s, does not exist", name, filepath.Dir(place.File))
		}
	}
	for _, name := range sortedKeys(m.Grants.Blob) {
		if s3 := h.Blobs[name].S3; s3 != nil && s3.AccessKey != "" {
			for _, key := range []string{s3.AccessKey, s3.SecretKey} {
				if err := secret(key); err != nil {
					note("blob store %s: %v", name, err)
				}
			}
		}
	}
	return missing
}

// secretsOf lists the secrets in a grant's headers.
func secretsOf(g HTTPGrant) (names []string) {
	for _, header := range sortedKeys(g.Headers) {
		for _, m := range secretPattern.FindAllStringSubmatch(g.Headers[header], -1) {
			names = append(names, m[1])
		}
	}
	return names
}

var secretPattern = regexp.MustCompile(`\{\{\s*secret\.([^{}\s]+)\s*\}\}`)

func originHost(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return strings.Replace(u.Hostname(), "localhost", "127.0.0.1", 1)
}

// reaches reports whether an address is public as far as that is known here, or
// allowed.
func (h *Host) reaches(a netip.Addr) bool {
	if !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() {
		return true
	}
	return slices.ContainsFunc(h.Networks.Prefixes(), func(p netip.Prefix) bool { return p.Contains(a) })
}
