// Command ledger keeps books of the messages that it handles, in every way that
// a function has an effect, so that tests can tell what became of each.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.HandleBatch(handle) }

func main() {} // a reactor is called, not run

var (
	db  = sdk.SQLite("ledger")
	url = os.Getenv("url")
)

func handle(ctx context.Context, b sdk.Batch) error {
	for _, q := range []string{
		"CREATE TABLE IF NOT EXISTS rows (n INTEGER NOT NULL)",
		"CREATE TABLE IF NOT EXISTS total (v INTEGER NOT NULL)",
		"INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total)",
	} {
		if _, err := db.Exec(ctx, q); err != nil {
			return err
		}
	}
	return b.Each(ctx, enter)
}

// enter books one message: its number in the body, after the word bad if it is to
// fail when all is done.
func enter(ctx context.Context, msg *sdk.Msg) error {
	text, bad := strings.CutPrefix(string(msg.Data()), "bad ")
	n, err := strconv.Atoi(text)
	if err != nil {
		return sdk.Term(err)
	}
	if _, err := db.Exec(ctx, "INSERT INTO rows VALUES (?)", n); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, "UPDATE total SET v = v + ?", n); err != nil {
		return err
	}
	if err := sdk.Publish(ctx, fmt.Sprintf("done.%d", n), []byte(text)); err != nil {
		return err
	}
	if url != "" {
		r, err := sdk.Fetch(ctx, &sdk.Request{Method: "POST", URL: url + "/" + text})
		if err != nil {
			return err
		}
		if r.Status != 200 {
			return fmt.Errorf("status %d", r.Status)
		}
	}
	if bad {
		return sdk.Term(errors.New("it is bad"))
	}
	return nil
}
