package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
)

// readers is the connections that read, with the statements that are prepared on
// them. It is safe for concurrent use.
type readers struct {
	db *sql.DB

	mu         sync.RWMutex         // read while a query begins: its statement is not closed then
	statements map[string]*sql.Stmt // by their text
}

func newReaders(db *sql.DB) *readers {
	db.SetMaxOpenConns(max(2, runtime.GOMAXPROCS(0)))
	return &readers{db: db, statements: map[string]*sql.Stmt{}}
}

func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, r.db.Close())...)
}

// query runs a statement, prepared if it was used before. A long one has its values
// written into it and does not come again.
func (r *readers) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if rows, known, err := r.again(ctx, query, args); known {
		return rows, err
	}
	if err := singleStatement(query); err != nil {
		return nil, err
	}
	if len(query) > maxCached {
		return r.db.QueryContext(ctx, query, args...)
	}
	s, err := r.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	r.keep(query, s)
	rows, known, err := r.again(ctx, query, args)
	if !known { // others have come and filled the place since
		return r.db.QueryContext(ctx, query, args...)
	}
	return rows, err
}

// again runs a statement that is prepared; known is false if it is not.
func (r *readers) again(ctx context.Context, query string, args []any) (rows *sql.Rows, known bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := r.statements[query]
	if s == nil {
		return nil, false, nil
	}
	rows, err = s.QueryContext(ctx, args...)
	return rows, true, err
}

// keep keeps a statement. One that is closed while its rows are read ends with them.
func (r *readers) keep(query string, s *sql.Stmt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.statements) >= MaxStatements {
		for _, old := range r.statements {
			old.Close() // it is not needed, whatever it says
		}
		clear(r.statements)
	}
	if old := r.statements[query]; old != nil { // another one was as fast
		old.Close()
	}
	r.statements[query] = s
}
