// Command statements runs as many host calls as a message says, for the benchmarks
// of what one costs.
package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(handle) }

func main() {} // a reactor is called, not run

// row is what each statement inserts.
func row(i int) []any { return []any{i, "a title of a usual length", "news", 1.5} }

const insert = "INSERT INTO rows (n, title, category, score) VALUES (?, ?, ?, ?)"

func handle(ctx context.Context, msg *sdk.Msg) error {
	command, number, _ := strings.Cut(string(msg.Data()), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return sdk.Term(err)
	}
	db := sdk.SQLite("test")
	switch command {
	case "one": // a call for each row
		for i := range n {
			if _, err := db.Exec(ctx, insert, row(i)...); err != nil {
				return err
			}
		}
	case "many": // a call for a hundred
		for range n / 100 {
			rows := make([][]any, 100)
			for i := range rows {
				rows[i] = row(i)
			}
			if _, err := db.ExecMany(ctx, insert, rows); err != nil {
				return err
			}
		}
	case "nothing": // calls that do next to nothing
		for range n {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	default:
		return sdk.Term(errors.New("unknown command " + command))
	}
	return nil
}
