//go:build unix

package blob

import (
	"os"
	"syscall"
)

// nonblock keeps the opening of a pipe that somebody left in the directory from
// waiting for a writer.
const nonblock = syscall.O_NONBLOCK

// lockFile waits for the lock of an open file. Closing it ends the lock.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
