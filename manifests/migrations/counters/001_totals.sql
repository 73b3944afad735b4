-- Where each video is counted, by its newest event.
CREATE TABLE videos (
  id TEXT PRIMARY KEY, source TEXT, category TEXT, revision INTEGER NOT NULL, removed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE totals (kind TEXT NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (kind, name)) STRICT;

CREATE TRIGGER videos_inserted AFTER INSERT ON videos WHEN new.removed = 0 BEGIN
  INSERT INTO totals SELECT 'source', new.source, 1 WHERE new.source IS NOT NULL ON CONFLICT DO UPDATE SET n = n + 1;
  INSERT INTO totals SELECT 'category', new.category, 1 WHERE new.category IS NOT NULL ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER videos_updated_old AFTER UPDATE ON videos WHEN old.removed = 0 BEGIN
  UPDATE totals SET n = n - 1 WHERE kind = 'source' AND name = old.source;
  UPDATE totals SET n = n - 1 WHERE kind = 'category' AND name = old.category;
END;
CREATE TRIGGER videos_updated_new AFTER UPDATE ON videos WHEN new.removed = 0 BEGIN
  INSERT INTO totals SELECT 'source', new.source, 1 WHERE new.source IS NOT NULL ON CONFLICT DO UPDATE SET n = n + 1;
  INSERT INTO totals SELECT 'category', new.category, 1 WHERE new.category IS NOT NULL ON CONFLICT DO UPDATE SET n = n + 1;
END;
