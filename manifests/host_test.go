package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, HostFile)
	const text = `
databases: {search: {file: app/search.db, foreign_writers: true}}
blobs:
  thumbs: {dir: /srv/thumbs, quota: 2GiB}
  own: {quota: 512MiB}
  media: {bucket: MEDIA}
  cdn: {s3: {endpoint: "https://s3.example.com", bucket: site, prefix: thumbs/, access_key: s3-key, secret_key: s3-secret}}
secrets: {dir: secrets}
networks: {allow: [10.2.0.7/16, "::1/128"]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := LoadHost(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.Databases["search"].File, filepath.Join(dir, "app", "search.db"); got != want || !h.Databases["search"].ForeignWriters {
		t.Errorf("search is in %s, want %s", got, want)
	}
	if h.Blobs["thumbs"].Dir != "/srv/thumbs" || h.Blobs["thumbs"].Quota != 2<<30 || h.Blobs["own"].Quota != 512<<20 || h.Blobs["own"].Dir != "" || h.Blobs["media"].Bucket != "MEDIA" || h.Blobs["cdn"].S3.AccessKey != "s3-key" || h.Secrets.Dir != filepath.Join(dir, "secrets") {
		t.Errorf("got %+v", h)
	}
	if p := h.Networks.Prefixes(); len(p) != 2 || p[0].String() != "10.2.0.0/16" {
		t.Errorf("networks %v", p)
	}
	if h, err := LoadHost(""); err != nil || len(h.Databases) != 0 {
		t.Errorf("no file = %+v, %v", h, err)
	}
	if _, err := LoadHost(filepath.Join(dir, "nothing.yaml")); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a file that is not there = %v, want what to do", err)
	}
}

// Each fault is said with its place and what to do.
func TestBadHost(t *testing.T) {
	for text, want := range map[string]string{
		"database: {}":                                                             "1:1",
		"databases: {search: {}}":                                                  "databases.search.file",
		"databases: {Search: {file: x}}":                                           "databases.Search",
		"databases: {search: {file: x, mode: ro}}":                                 "mode",
		"blobs: {thumbs: {}}":                                                      "exactly one of dir, bucket and s3",
		"blobs: {thumbs: {bucket: Y, quota: 1GiB}}":                                "object add --max-bucket-size",
		"blobs: {thumbs: {quota: 5}}":                                              "5",
		"blobs: {thumbs: {dir: x, bucket: Y}}":                                     "exactly one of dir, bucket and s3",
		"blobs: {thumbs: {bucket: a.b}}":                                           "blobs.thumbs.bucket",
		"blobs: {t: {s3: {endpoint: x, bucket: site}}}":                            "blobs.t.s3.endpoint",
		"blobs: {t: {s3: {endpoint: \"https://u:p@h\", bucket: site}}}":            "blobs.t.s3.endpoint",
		"blobs: {t: {s3: {endpoint: \"https://h\", bucket: X}}}":                   "blobs.t.s3.bucket",
		"blobs: {t: {s3: {endpoint: \"https://h\", bucket: site, access_key: k}}}": "access_key and secret_key",
		"networks: {allow: [10.0.0.1]}":                                            "CIDR",
		"networks: {allow: [169.254.169.254/32]}":                                  "metadata",
		"networks: {allow: [0.0.0.0/0]}":                                           "metadata",
		"networks: {allow: [\"fd00::/8\"]}":                                        "metadata",
		"secrets: /run/secrets":                                                    "secrets",
	} {
		_, err := DecodeHost("pelton.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pelton.yaml:1") {
			t.Errorf("%s: %v; want %q and the place", text, err, want)
		}
	}
}

func TestMissing(t *testing.T) {
	m, err := Decode("f.yaml", []byte(`
name: f
triggers: [{stream: S}]
grants:
  http:
    - {origin: "https://api.example.com", headers: {Authorization: "Bearer {{secret.token}}"}}
    - {origin: "http://10.1.2.3:80"}
    - {origin: "http://localhost:8080"}
  sqlite: {app: {mode: write}}
  blob: {cdn: {mode: write}}
`))
	if err != nil {
		t.Fatal(err)
	}
	secret := func(has ...string) func(string) error {
		return func(name string) error {
			if slices.Contains(has, name) {
				return nil
			}
			return errors.New("secret " + name + " is not set")
		}
	}
	bare := &Host{Databases: map[string]DatabasePlace{"app": {File: "/nowhere/app.db"}}, Blobs: map[string]BlobPlace{"cdn": {S3: &S3Place{AccessKey: "ak", SecretKey: "sk"}}}}
	got := strings.Join(bare.Missing(m, secret("ak")), "; ")
	for _, want := range []string{"secret token", "10.1.2.3", "localhost", "/nowhere", "secret sk"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not name %q", got, want)
		}
	}
	if strings.Contains(got, "secret ak") {
		t.Errorf("%q names what is there", got)
	}
	whole := &Host{Databases: map[string]DatabasePlace{"app": {File: filepath.Join(t.TempDir(), "app.db")}}, Networks: Networks{Allow: []string{"10.1.0.0/16", "127.0.0.0/8"}}}
	if got := whole.Missing(m, secret("token")); len(got) > 0 {
		t.Errorf("a host that has everything lacks %v", got)
	}
}
