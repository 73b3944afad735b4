-- One row a video. A removed one stays as a tombstone.
CREATE TABLE videos (
  doc         INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  external_id TEXT,
  source      TEXT, region TEXT, category TEXT,
  title       TEXT, channel TEXT, tags TEXT,
  occurred_at TEXT,
  revision    INTEGER NOT NULL,
  removed     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE VIRTUAL TABLE videos_fts USING fts5(title, channel, tags, content='videos', content_rowid='doc');

-- The index follows the table: what was indexed is deleted with its old values,
-- then the new values are inserted.
CREATE TRIGGER videos_inserted AFTER INSERT ON videos WHEN new.removed = 0 BEGIN
  INSERT INTO videos_fts (rowid, title, channel, tags) VALUES (new.doc, new.title, new.channel, new.tags);
END;
CREATE TRIGGER videos_updated AFTER UPDATE ON videos BEGIN
  INSERT INTO videos_fts (videos_fts, rowid, title, channel, tags) SELECT 'delete', old.doc, old.title, old.channel, old.tags WHERE old.removed = 0;
  INSERT INTO videos_fts (rowid, title, channel, tags) SELECT new.doc, new.title, new.channel, new.tags WHERE new.removed = 0;
END;
