package pelton

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityDocument keeps docs/security.md honest: every promise names tests,
// and these are there.
func TestSecurityDocument(t *testing.T) {
	doc, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	sources := map[string]string{} // of the tests, by folder
	rows := 0
	for line := range strings.SplitSeq(string(doc), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test for: %s", line)
		}
		for _, m := range tests {
			folder, name := m[1], m[2]
			if _, ok := sources[folder]; !ok {
				sources[folder] = testsOf(t, folder)
			}
			if !strings.Contains(sources[folder], "func "+name+"(") {
				t.Errorf("%s has no %s", folder, name)
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d promises were read", rows)
	}
}

func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
