package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pelton-run/pelton/functions/event"
)

// The limits of one file, by https://www.sitemaps.org/protocol.html.
const (
	maxURLs  = 50_000
	maxBytes = 52_428_800
	pageRows = 5_000 // read from the database at one time
)

const (
	header   = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	setOpen  = header + `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` + "\n"
	setClose = "</urlset>\n"
	idxOpen  = header + `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` + "\n"
	idxClose = "</sitemapindex>\n"
)

// page is one entry of a sitemap.
type page struct{ path, lastmod string }

// entry formats a page as a <url> element, escaped exactly once. A lastmod that
// is not a date is left out and the URL kept.
func entry(base string, p page) string {
	var b strings.Builder
	b.WriteString("<url><loc>")
	xml.EscapeText(&b, []byte(base+p.path)) // a strings.Builder takes everything
	b.WriteString("</loc>")
	if l := lastmod(p.lastmod); l != "" {
		b.WriteString("<lastmod>" + l + "</lastmod>")
	}
	b.WriteString("</url>\n")
	return b.String()
}

// lastmod writes a time in the W3C form that search engines take, "" for a text
// that is not a time with its zone.
func lastmod(s string) string {
	t, dateOnly, ok := event.Time(s)
	switch {
	case !ok:
		return ""
	case dateOnly:
		return t.Format("2006-01-02")
	}
	return t.Format(time.RFC3339)
}

// sheet collects the files of one region: a single <urlset> as long as it
// fits, several with an index when it does not.
type sheet struct {
	put    func(name string, data []byte) error
	base   string
	region string
	body   bytes.Buffer // of the file that is being filled
	urls   int          // in it
	parts  int          // written so far
}

func (s *sheet) add(p page) error {
	e := entry(s.base, p)
	if s.urls == maxURLs || len(setOpen)+s.body.Len()+len(e)+len(setClose) > maxBytes {
		if err := s.writePart(); err != nil {
			return err
		}
	}
	s.body.WriteString(e)
	s.urls++
	return nil
}

func (s *sheet) partName(n int) string { return "sitemap_" + s.region + "." + strconv.Itoa(n) + ".xml" }

func (s *sheet) writePart() error {
	s.parts++
	err := s.put(s.partName(s.parts), s.file())
	s.body.Reset()
	s.urls = 0
	return err
}

func (s *sheet) file() []byte {
	data := make([]byte, 0, len(setOpen)+s.body.Len()+len(setClose))
	data = append(data, setOpen...)
	data = append(data, s.body.Bytes()...)
	return append(data, setClose...)
}

// finish writes the file that all others are found by; its name is the same
// whether it holds the URLs or lists the parts.
func (s *sheet) finish() error {
	entryFile := "sitemap_" + s.region + ".xml"
	if s.parts == 0 {
		return s.put(entryFile, s.file())
	}
	if err := s.writePart(); err != nil {
		return err
	}
	var index bytes.Buffer
	index.WriteString(idxOpen)
	for n := 1; n <= s.parts; n++ {
		index.WriteString("<sitemap><loc>")
		xml.EscapeText(&index, []byte(s.base+"/"+s.partName(n))) // a bytes.Buffer takes everything
		index.WriteString("</loc></sitemap>\n")
	}
	index.WriteString(idxClose)
	return s.put(entryFile, index.Bytes())
}

// write writes the files of a region from the database, and removes the parts
// that are no longer listed.
func write(ctx context.Context, region string) error {
	s := &sheet{base: base, region: region, put: func(name string, data []byte) error {
		return site.PutBytes(ctx, name, "application/xml", data)
	}}
	after := ""
	for {
		rows, err := db.Query(ctx, `SELECT id, path, lastmod FROM pages WHERE region = ? AND removed = 0 AND id > ? ORDER BY id LIMIT ?`, region, after, pageRows)
		if err != nil {
			return err
		}
		for rows.Next() {
			var p page
			if err := rows.Scan(&after, &p.path, &p.lastmod); err != nil {
				return err
			}
			if err := s.add(p); err != nil {
				return fmt.Errorf("write sitemap: %w", err)
			}
		}
		if rows.Len() < pageRows {
			break
		}
	}
	if err := s.finish(); err != nil {
		return fmt.Errorf("write sitemap: %w", err)
	}
	return removeOldParts(ctx, s)
}

func removeOldParts(ctx context.Context, s *sheet) error {
	old, err := site.List(ctx, "sitemap_"+s.region+".", "", 1000)
	if err != nil {
		return fmt.Errorf("list sitemaps: %w", err)
	}
	listed := map[string]bool{}
	for n := 1; n <= s.parts; n++ {
		listed[s.partName(n)] = true
	}
	for _, b := range old {
		if isPart(b.Key, s.region) && !listed[b.Key] {
			if err := site.Delete(ctx, b.Key); err != nil {
				return fmt.Errorf("remove old sitemap: %w", err)
			}
		}
	}
	return nil
}

// isPart recognises a region's parts. A region's name has no dot, so no other
// region's file can be taken for one.
func isPart(key, region string) bool {
	number, ok := strings.CutPrefix(key, "sitemap_"+region+".")
	number, ok2 := strings.CutSuffix(number, ".xml")
	_, err := strconv.Atoi(number)
	return ok && ok2 && err == nil
}
