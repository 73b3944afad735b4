package manifests

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestGoodManifests(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*.[yj]*")
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			m, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(m, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file+".golden", append(got, '\n'))
			again, err := Decode("again.json", got)
			if err != nil {
				t.Fatalf("the resolved manifest does not decode: %v", err)
			}
			a, _ := m.Fingerprint(".")
			b, _ := again.Fingerprint(".")
			if again.Module = m.Module; a != b {
				t.Errorf("digest of the resolved manifest = %s, want %s", b, a)
			}
		})
	}
}

// Every bad manifest is refused with its place and a hint that can be acted on.
func TestBadManifests(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) < 30 {
		t.Fatalf("%d bad manifests, want at least 30", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(file)
			if err == nil {
				t.Fatal("it loads")
			}
			if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "hint: ") {
				t.Errorf("error names no file or no hint: %v", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".err", []byte(err.Error()+"\n"))
		})
	}
}

func TestShippedManifests(t *testing.T) {
	files, _ := filepath.Glob("*.yaml")
	for _, file := range files {
		if file == StreamsFile {
			if _, err := LoadStreams(file); err != nil {
				t.Error(err)
			}
			continue
		}
		m, err := Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.Fingerprint("."); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	of := func(src string) string {
		m, err := Decode("f.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		digest, err := m.Fingerprint(dir)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	os.Mkdir(filepath.Join(dir, "m"), 0o755)
	write("m/1.sql", "CREATE TABLE a (b)")
	plain := of("name: f\ntriggers: [{stream: S}]\ngrants: {sqlite: {d: {mode: write, migrations: m}}}\n")
	if got := of("# a comment\ngrants: {sqlite: {d: {migrations: m, mode: write}}}\ntriggers:\n  - stream: S\nname: f\n"); got != plain {
		t.Errorf("another order and a comment change the digest: %s, want %s", got, plain)
	}
	if got := of("name: f\ntimeout: 31s\ntriggers: [{stream: S}]\ngrants: {sqlite: {d: {mode: write, migrations: m}}}\n"); got == plain {
		t.Error("another timeout does not change the digest")
	}
	write("m/1.sql", "CREATE TABLE a (c)")
	if got := of("name: f\ntriggers: [{stream: S}]\ngrants: {sqlite: {d: {mode: write, migrations: m}}}\n"); got == plain {
		t.Error("another migration does not change the digest")
	}
}

func TestPlacement(t *testing.T) {
	m, err := Decode("f.yaml", []byte("name: f\nplacement: {regions: [eu]}\ntriggers: [{stream: S, durable_name: 'f-{{region}}-{{host}}', filter_subjects: ['v.*.{{region}}']}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	on := m.On("eu", "h1")
	if got, want := on.Triggers[0].DurableName, "f-eu-h1"; got != want {
		t.Errorf("durable = %q, want %q", got, want)
	}
	if got, want := on.Triggers[0].FilterSubjects[0], "v.*.eu"; got != want {
		t.Errorf("filter = %q, want %q", got, want)
	}
	if got := m.Triggers[0].FilterSubjects[0]; got != "v.*.{{region}}" {
		t.Errorf("the manifest itself changed: %q", got)
	}
	if !m.RunsIn("eu") || m.RunsIn("us") {
		t.Error("placement.regions is not kept")
	}
}

func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "testdata/*/*.json", "*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := Decode("fuzz.yaml", src)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		if !namePattern.MatchString(m.Name) || len(m.Triggers) == 0 || m.Timeout <= 0 {
			t.Errorf("a manifest passed that must not: %+v", m)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Errorf("encode: %v", err)
		}
		DecodeStreams("streams.yaml", src) // must not panic
	})
}
