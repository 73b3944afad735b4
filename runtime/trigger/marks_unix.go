//go:build unix

package trigger

import (
	"os"
	"syscall"
)

// mapShared maps a file so that what is written to the memory is in the file.
func mapShared(f *os.File, size int) (memory []byte, unmap func() error, err error) {
	memory, err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return memory, func() error { return syscall.Munmap(memory) }, err
}
