package journal

import "golang.org/x/sys/unix"

// portion is how many records are read before what was mapped for them is given back.
const portion = 1024

// release gives back the pages of the file that were mapped so far. Records lie all over a file that grew, and with each page the kernel
// maps those around it: a reader of a part of the records would hold the whole file in memory, however large it is. What is read again is
// mapped again, from the page cache. It does nothing in a worker, whose mapped pages serve its next commit.
func (s *store) release() {
	db := s.tx.DB()
	if !db.IsReadOnly() {
		return
	}
	// By address, since bbolt hands out no more. A hint: where it is refused, more memory is used.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(s.tx.Size()), unix.MADV_DONTNEED)
}
