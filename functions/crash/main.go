//go:build wasip1

// Command crash misbehaves as its messages tell it, in ways that the SDK does
// not catch, to show in tests that the host does.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.HandleBatch(handle) }

func main() {} // a reactor is called, not run

// The border, without the SDK's care.

//go:wasmimport pelton buffer_new
func bufferNew(id uint32, ptr, size uint32) int32

//go:wasmimport pelton delivery_begin
func deliveryBegin(id uint32) int32

//go:wasmimport pelton log
func hostLog(id uint32, level int32, ptr, size uint32)

// hoard keeps what grow allocates.
var hoard [][]byte

func handle(ctx context.Context, b sdk.Batch) error {
	for i, msg := range b.Messages() {
		deliveryBegin(uint32(2 + i)) // so that the host knows who is at work
		command, _, _ := strings.Cut(string(msg.Data()), " ")
		misbehave(command)
	}
	return nil
}

func misbehave(command string) {
	switch command {
	case "exit":
		os.Exit(0) // status 0 is not an ack
	case "goroutine-panic":
		go func() { panic("out of reach") }()
		time.Sleep(time.Millisecond)
	case "deadlock":
		select {}
	case "loop":
		for n := 0; ; n++ {
			spin(n)
		}
	case "hour":
		time.Sleep(time.Hour)
	case "grow":
		for {
			hoard = append(hoard, make([]byte, 1<<20))
		}
	case "wild-high":
		bufferNew(1, 0xFFFFFFF0, 0xFFFFFFFF)
	case "wild-low":
		bufferNew(1, 0, 0xFFFFFFFF)
	case "wild-edge":
		hostLog(0, 0, 0xFFFFFFFF, 2)
	case "deep":
		deep(0)
	}
}

//go:noinline
func spin(n int) int { return n * n }

//go:noinline
func deep(n int) int {
	var pad [64]int
	pad[n%64] = n
	return deep(n+1) + pad[(n+1)%64]
}
