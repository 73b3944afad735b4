-- A page belongs to a region: the same video can be listed in several.
CREATE TABLE pages (
  region TEXT NOT NULL, id TEXT NOT NULL, path TEXT NOT NULL, lastmod TEXT,
  revision INTEGER NOT NULL, removed INTEGER NOT NULL DEFAULT 0, changed INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (region, id)
) STRICT;
CREATE INDEX pages_by_region ON pages (region, id) WHERE removed = 0;
CREATE INDEX pages_changed ON pages (region, id) WHERE changed = 1;

-- Regions whose files are older than their pages.
CREATE TABLE dirty (region TEXT PRIMARY KEY) STRICT;
