package main

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

type urlset struct {
	XMLName xml.Name `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 urlset"`
	URLs    []struct {
		Loc     string `xml:"loc"`
		Lastmod string `xml:"lastmod"`
	} `xml:"url"`
}

type sitemapindex struct {
	XMLName  xml.Name `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 sitemapindex"`
	Sitemaps []struct {
		Loc string `xml:"loc"`
	} `xml:"sitemap"`
}

func build(t *testing.T, pages []page) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	s := &sheet{base: "https://x.example", region: "eu", put: func(name string, data []byte) error {
		files[name] = data
		return nil
	}}
	for _, p := range pages {
		if err := s.add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	return files
}

// MAP-1: at most 50,000 URLs a file, with an index above that, under one name.
func TestSplit(t *testing.T) {
	for n, want := range map[int]int{0: 1, 49_999: 1, 50_000: 1, 50_001: 3, 120_001: 4} {
		pages := make([]page, n)
		for i := range pages {
			pages[i].path = fmt.Sprintf("/watch/%d", i)
		}
		files := build(t, pages)
		if len(files) != want {
			t.Errorf("%d URLs: %d files, want %d", n, len(files), want)
		}
		names := []string{"sitemap_eu.xml"}
		if want > 1 {
			var index sitemapindex
			if err := xml.Unmarshal(files["sitemap_eu.xml"], &index); err != nil {
				t.Fatalf("%d URLs: %v", n, err)
			}
			names = nil
			for _, s := range index.Sitemaps {
				names = append(names, strings.TrimPrefix(s.Loc, "https://x.example/"))
			}
		}
		seen := map[string]bool{}
		for _, name := range names {
			var set urlset
			if err := xml.Unmarshal(files[name], &set); err != nil {
				t.Fatalf("%d URLs, %s: %v", n, name, err)
			}
			if len(set.URLs) > maxURLs || len(files[name]) > maxBytes {
				t.Errorf("%s has %d URLs and %d bytes", name, len(set.URLs), len(files[name]))
			}
			for _, u := range set.URLs {
				if seen[u.Loc] {
					t.Errorf("%s is there twice", u.Loc)
				}
				seen[u.Loc] = true
			}
		}
		if len(seen) != n {
			t.Errorf("%d URLs are there, want %d", len(seen), n)
		}
	}
}

func TestSplitByBytes(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	pages := make([]page, 600) // 60 MB
	for i := range pages {
		pages[i].path = fmt.Sprintf("/%d/%s", i, long)
	}
	for name, b := range build(t, pages) {
		if len(b) > maxBytes {
			t.Errorf("%s has %d bytes, the limit is %d", name, len(b), maxBytes)
		}
	}
}

// MAP-2: escaped exactly once; a lastmod that is not one is left out.
func TestEscaping(t *testing.T) {
	paths := []string{"/terms&policies", "/a?x=1&y=2", "/q='z'", "/<tag>", "/already?x=1&amp;y=2"}
	times := []string{"2024-01-08", "2024-01-08T00:00:00", "2024-01-08 10:00:00+0200", "", "yesterday"}
	var pages []page
	for i := range paths {
		pages = append(pages, page{paths[i], times[i]})
	}
	var set urlset
	if err := xml.Unmarshal(build(t, pages)["sitemap_eu.xml"], &set); err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$`)
	for i, u := range set.URLs {
		if want := "https://x.example" + paths[i]; u.Loc != want {
			t.Errorf("loc = %q, want %q", u.Loc, want)
		}
		if want := []string{"2024-01-08", "", "2024-01-08T10:00:00+02:00", "", ""}[i]; u.Lastmod != want || want != "" && !form.MatchString(u.Lastmod) {
			t.Errorf("lastmod of %q = %q, want %q", times[i], u.Lastmod, want)
		}
	}
}

func TestParts(t *testing.T) {
	for key, want := range map[string]bool{"sitemap_eu.1.xml": true, "sitemap_eu.12.xml": true, "sitemap_eu.xml": false, "sitemap_eu-1.xml": false, "sitemap_eu-1.1.xml": false, "sitemap_eu.x.xml": false} {
		if got := isPart(key, "eu"); got != want {
			t.Errorf("isPart(%s) = %v, want %v", key, got, want)
		}
	}
	if isPart("sitemap_eu-west.xml", "eu") {
		t.Error("another region's file is taken for a part")
	}
	if got := regionName("Süd/../x"); strings.ContainsAny(got, "/.ü") {
		t.Errorf("regionName = %q", got)
	}
}
