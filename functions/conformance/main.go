// Command conformance does what its messages tell it, to tie the SDK to the
// engine in tests: the first word of a body is a command, the rest its argument.
// The answer goes to the log, and to the asker of a request.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pelton-run/pelton/functions/program"
	"github.com/pelton-run/pelton/sdk"
)

func init() {
	sdk.Handle(handle)
	slog.Info("initialised")
}

func main() {} // a reactor is called, not run

// What one message can leave behind for the next ones of its instance.
var (
	calls int
	left  [][]byte
	ticks int
)

func handle(ctx context.Context, msg *sdk.Msg) error {
	calls++
	command, arg, _ := strings.Cut(string(msg.Data()), " ")
	answer, err := do(ctx, msg, command, arg)
	if err != nil {
		return err
	}
	slog.InfoContext(ctx, answer, "command", command, "trigger", msg.Trigger())
	if msg.Reply() != "" && msg.Metadata().Stream == "" {
		return msg.Respond([]byte(answer))
	}
	return nil
}

func do(ctx context.Context, msg *sdk.Msg, command, arg string) (string, error) {
	switch command {
	case "ack", "":
		return "ok", nil
	case "fail":
		return "", errors.New("failed: " + arg)
	case "term":
		return "", sdk.Term(errors.New("given up: " + arg))
	case "delay":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return "", sdk.Term(err)
		}
		return "", sdk.NakWithDelay(errors.New("later"), d)
	case "fail-until": // the n-th delivery succeeds
		if n, _ := strconv.Atoi(arg); msg.Metadata().NumDelivered < uint64(n) {
			return "", errors.New("not yet")
		}
		return "at last", nil
	case "panic":
		panic("told to: " + arg)
	case "sleep":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return "", sdk.Term(err)
		}
		time.Sleep(d)
		return "slept", nil
	case "again": // what it got, on the subject that it came from
		return "", say(sdk.Publish(ctx, msg.Subject(), msg.Data()))
	case "len":
		return strconv.Itoa(len(msg.Data())), nil
	case "env":
		return os.Getenv(arg), nil
	case "calls":
		return strconv.Itoa(calls), nil
	case "leave": // something behind: a goroutine, and memory
		left = append(left, make([]byte, 1<<10))
		go func() {
			for {
				time.Sleep(time.Millisecond)
				ticks++
			}
		}()
		for ticks == 0 {
			time.Sleep(time.Millisecond)
		}
		return fmt.Sprint(len(left), " ", ticks > 0), nil
	case "found": // what others left behind
		time.Sleep(5 * time.Millisecond)
		return fmt.Sprint(len(left), " ", ticks > 0), nil
	case "now":
		return strconv.FormatInt(time.Now().Unix(), 10), nil
	case "header":
		return strings.Join(msg.Headers().Values(arg), ","), nil
	case "where":
		md := msg.Metadata()
		return fmt.Sprintf("%s %s %s %d %d", msg.Trigger(), md.Stream, md.Consumer, md.Sequence.Stream, md.NumDelivered), nil
	}
	return waiting(ctx, command, arg)
}

// held is locked over an operation by the command lock.
var held sync.Mutex

// waiting has the commands that wait and run beside others.
func waiting(ctx context.Context, command, arg string) (string, error) {
	switch command {
	case "program":
		seed, err := strconv.ParseUint(arg, 10, 64)
		if err != nil {
			return "", sdk.Term(err)
		}
		outcome := program.Run(ctx, seed, operate)
		return fmt.Sprintf("%x %d", sha256.Sum256([]byte(outcome)), len(outcome)), nil
	case "wait": // for operations of so many microseconds, one after another
		for _, us := range strings.Fields(arg) {
			n, _ := strconv.Atoi(us)
			if _, err := operate(ctx, time.Duration(n)*time.Microsecond, 1); err != nil {
				return "", err
			}
		}
		return "waited", nil
	case "lock":
		held.Lock()
		defer held.Unlock()
		_, err := operate(ctx, 5*time.Millisecond, 1)
		return "locked", err
	case "forever":
		<-make(chan int)
	case "until-done":
		<-ctx.Done()
		return "", ctx.Err()
	case "spin-until-done":
		for n := 0; ctx.Err() == nil; n++ {
		}
		return "", ctx.Err()
	case "stubborn":
		for {
			time.Sleep(time.Hour)
		}
	case "nap-spin":
		time.Sleep(5 * time.Millisecond)
		for n := 0; ; n++ {
			calls += n & 1
		}
	case "goroutines":
		return strconv.Itoa(runtime.NumGoroutine()), nil
	case "abandon": // an operation, and a goroutine that waits for it
		go operate(ctx, time.Hour, 1)
		runtime.Gosched()
		return "abandoned", nil
	case "shout": // without an end of line
		n, _ := strconv.Atoi(arg)
		_, err := os.Stdout.Write(make([]byte, n))
		return "shouted", err
	case "random":
		b := make([]byte, 1<<20)
		for {
			rand.Read(b)
		}
	case "spin":
		d, err := time.ParseDuration(arg)
		for start := time.Now(); time.Since(start) < d; {
		}
		return "spun", err
	case "hog": // memory
		n, _ := strconv.Atoi(arg)
		left = append(left, make([]byte, n))
		return strconv.Itoa(len(left)), nil
	case "exit":
		os.Exit(3)
	}
	return capability(ctx, command, arg)
}

// operate is an operation of the host that takes d.
func operate(ctx context.Context, d time.Duration, v int) (int, error) {
	resp, err := sdk.Fetch(ctx, &sdk.Request{URL: fmt.Sprintf("http://test.example/?us=%d&v=%d", d.Microseconds(), v)})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := resp.Body.Bytes()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

func capability(ctx context.Context, command, arg string) (string, error) {
	switch command {
	case "exec":
		r, err := sdk.SQLite("test").Exec(ctx, arg)
		return fmt.Sprint(r.RowsAffected), say(err)
	case "exec-many": // inserts numbers, in one call
		var rows [][]any
		for _, n := range strings.Fields(arg) {
			rows = append(rows, []any{n, len(n)})
		}
		r, err := sdk.SQLite("test").ExecMany(ctx, "INSERT INTO many VALUES (?, ?)", rows)
		return fmt.Sprint(r.RowsAffected, " ", r.LastInsertID), say(err)
	case "exec-term": // writes, and is given up on
		if _, err := sdk.SQLite("test").Exec(ctx, arg); err != nil {
			return "", sdk.Term(err)
		}
		return "", sdk.Term(errors.New("written and regretted"))
	case "query":
		rows, err := sdk.SQLite("test").Query(ctx, arg)
		if err != nil {
			return "", say(err)
		}
		var out []string
		for rows.Next() {
			out = append(out, fmt.Sprint(rows.Values()...))
		}
		return strings.Join(out, ";"), nil
	case "values": // every type, there and back
		rows, err := sdk.SQLite("test").Query(ctx, "SELECT ?, ?, ?, ?, ?", nil, int64(-1<<63), 1.5, "täxt", []byte{0, 255})
		if err != nil {
			return "", say(err)
		}
		rows.Next()
		return fmt.Sprintf("%#v", rows.Values()), nil
	case "fetch":
		resp, err := sdk.Fetch(ctx, &sdk.Request{URL: arg})
		if err != nil {
			return "", say(err)
		}
		b, err := resp.Body.Bytes()
		return fmt.Sprintf("%d %s", resp.Status, b), err
	case "fetch-all": // of URLs, with a body each
		var requests []*sdk.Request
		for i, url := range strings.Fields(arg) {
			requests = append(requests, &sdk.Request{Method: "POST", URL: url, Body: []byte(strconv.Itoa(i))})
		}
		results, err := sdk.FetchAll(ctx, requests...)
		if err != nil {
			return "", say(err)
		}
		var all []string
		for _, r := range results {
			if r.Err != nil {
				all = append(all, r.Err.Error())
				continue
			}
			b, err := r.Body.Bytes()
			if err != nil {
				return "", say(err)
			}
			all = append(all, fmt.Sprintf("%d %s", r.Status, b))
		}
		return strings.Join(all, "; "), nil
	case "publish":
		subject, body, _ := strings.Cut(arg, " ")
		return "published", say(sdk.Publish(ctx, subject, []byte(body)))
	case "blob":
		return blob(ctx, arg)
	case "blob-if": // creates, replaces, and does neither on a condition that does not hold
		return conditions(ctx, arg)
	case "kv":
		return keyValue(ctx, arg)
	}
	return "", sdk.Term(errors.New("unknown command " + command))
}

// say makes a refusal permanent, with its number in front.
func say(err error) error {
	if err == nil {
		return nil
	}
	var refused *sdk.HostError
	if errors.As(err, &refused) {
		return sdk.Term(fmt.Errorf("errno %d: %w", refused.Errno, err))
	}
	return sdk.Term(err)
}

func blob(ctx context.Context, key string) (string, error) {
	store := sdk.Blobs("test")
	if err := store.PutBytes(ctx, key, "text/plain", []byte("content of "+key)); err != nil {
		return "", say(err)
	}
	info, body, err := store.Get(ctx, key)
	if err != nil {
		return "", say(err)
	}
	b, err := body.Bytes()
	if err != nil {
		return "", say(err)
	}
	list, err := store.List(ctx, "", "", 10)
	if err != nil {
		return "", say(err)
	}
	return fmt.Sprintf("%s %d %q of %d", info.Key, info.Size, b, len(list)), say(store.Delete(ctx, key))
}

func conditions(ctx context.Context, key string) (string, error) {
	store := sdk.Blobs("test")
	body, err := sdk.NewBuffer(ctx, []byte("0123456789"))
	if err != nil {
		return "", say(err)
	}
	o := sdk.PutOptions{ContentType: "text/x-digits", Metadata: map[string]string{"a": "1", "b-2": "two words"}, If: sdk.IfNew}
	first, err := store.PutWith(ctx, key, o, body)
	if err != nil {
		return "", say(err)
	}
	_, again := store.PutWith(ctx, key, o, body)
	o.If = first
	second, err := store.PutWith(ctx, key, o, body)
	if err != nil {
		return "", say(err)
	}
	_, stale := store.PutWith(ctx, key, o, body)
	info, err := store.Stat(ctx, key)
	if err != nil {
		return "", say(err)
	}
	_, part, err := store.GetRange(ctx, key, 3, 4)
	if err != nil {
		return "", say(err)
	}
	b, err := part.Bytes()
	if err != nil {
		return "", say(err)
	}
	_, _, behind := store.GetRange(ctx, key, 11, 0)
	return fmt.Sprintf("%v %v %v %v %s %d %v %s", errors.Is(again, sdk.ErrConflict), errors.Is(stale, sdk.ErrConflict), first != second && info.ETag == second,
		errors.Is(behind, sdk.ErrInvalid), info.ContentType, info.Size, info.Metadata, b), say(store.Delete(ctx, key))
}

func keyValue(ctx context.Context, key string) (string, error) {
	kv := sdk.KeyValue("TEST")
	first, err := kv.Create(ctx, key, []byte("one"))
	if err != nil {
		return "", say(err)
	}
	if _, err := kv.Create(ctx, key, []byte("again")); !errors.Is(err, sdk.ErrConflict) {
		return "", sdk.Term(fmt.Errorf("a second create: %v", err))
	}
	second, err := kv.Update(ctx, key, []byte("two"), first)
	if err != nil {
		return "", say(err)
	}
	e, err := kv.Get(ctx, key)
	if err != nil {
		return "", say(err)
	}
	keys, err := kv.Keys(ctx, "", 10)
	if err != nil {
		return "", say(err)
	}
	if err := kv.Delete(ctx, key); err != nil {
		return "", say(err)
	}
	_, err = kv.Get(ctx, key)
	return fmt.Sprintf("%s grew %v keys %d gone %v", e.Value, second > first, len(keys), errors.Is(err, sdk.ErrNotFound)), nil
}
