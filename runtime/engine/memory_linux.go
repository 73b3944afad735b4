package engine

import "syscall"

// populateWrite has the system make pages at once (madvise(2), MADV_POPULATE_WRITE,
// since Linux 5.14): a fault for each takes longer than all else of a new instance.
const populateWrite = 23

// reserve returns so many bytes of zeros outside of Go's heap, of which the first
// are used soon; nil when there are none left.
func reserve(size, soon int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	syscall.Madvise(b[:soon], populateWrite) // an older system makes them one by one
	return b
}

// release gives back what reserve returned.
func release(b []byte) {
	syscall.Munmap(b) // it fails only for what is no mapping
}
