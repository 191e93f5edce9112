// Package extant opens, reads, changes and makes images of ext2, ext3 and ext4, in process, without root and without the
// driver of the kernel. It calls the C library libextant.
//
// A [Volume] is an [io/fs.FS], whose names have no leading slash: the root is ".". The calls that write have the names
// and arguments of package os. Errors are [*io/fs.PathError] with an [*Error], so that
// errors.Is(err, fs.ErrNotExist) and errors.Is(err, syscall.ENOSPC) work.
//
// Volumes and files may be used by several goroutines at once.
package extant

/*
#cgo pkg-config: extant
#include <stdlib.h>
#include <extant.h>
*/
import "C"

import (
	"io/fs"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// Error is an error of the library.
type Error struct {
	// Errno is the number, such as syscall.ENOENT; syscall.EUCLEAN for an image that breaks a rule of the format.
	Errno syscall.Errno
	// Text is the message of the library. For a damaged image it names the rule and the place.
	Text string
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the number, so that errors.Is matches it and the errors of package io/fs.
func (e *Error) Unwrap() error { return e.Errno }

// call runs a function of the library, and returns its count or its error. The message belongs to the thread.
func call(f func() C.ssize_t) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := f()
	if n < 0 {
		return 0, &Error{syscall.Errno(-n), C.GoString(C.extant_last_error())}
	}
	return int(n), nil
}

// at is call for an operation on a path.
func at(op, name string, f func() C.ssize_t) (int, error) {
	n, err := call(f)
	if err != nil {
		err = &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, err
}

// arena holds C strings until the end of a call.
type arena []unsafe.Pointer

func (a *arena) str(s string) *C.char {
	c := C.CString(s)
	*a = append(*a, unsafe.Pointer(c))
	return c
}

// opt is str, but NULL for an empty string.
func (a *arena) opt(s string) *C.char {
	if s == "" {
		return nil
	}
	return a.str(s)
}

func (a *arena) free() {
	for _, p := range *a {
		C.free(p)
	}
}

// Volume is an open volume.
type Volume struct {
	lock    sync.RWMutex
	handle  *C.extant_volume
	release func() // of a device
}

var (
	_ fs.ReadDirFS  = (*Volume)(nil)
	_ fs.ReadFileFS = (*Volume)(nil)
	_ fs.StatFS     = (*Volume)(nil)
)

// CreateOptions are the properties of a new volume. Zero values are the defaults, except that Size or Source must be set.
type CreateOptions struct {
	Size        int64  // bytes; 0: as the source needs
	BlockSize   int    // 1024, 2048 or 4096; 0: by the size
	JournalSize int64  // bytes; 0: by the size
	Features    string // as mke2fs -O takes them
	Label       string // at most 16 bytes
	Source      string // directory or archive that fills the volume
}

// Create makes a file with a new volume, and opens the volume for writing.
func Create(path string, options CreateOptions) (*Volume, error) {
	if err := noNUL("create", path, options.Features, options.Label, options.Source); err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	v := new(Volume)
	_, err := at("create", path, func() C.ssize_t {
		c := C.struct_extant_create_options{
			size:         C.uint64_t(options.Size),
			block_size:   C.uint32_t(options.BlockSize),
			journal_size: C.uint64_t(options.JournalSize),
			features:     a.opt(options.Features),
			label:        a.opt(options.Label),
			source:       a.opt(options.Source),
		}
		return C.ssize_t(C.extant_create(a.str(path), &c, &v.handle))
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Open opens an image for reading. Nothing is written: a journal is replayed in memory.
func Open(path string) (*Volume, error) { return open(path, C.EXTANT_READ_ONLY) }

// OpenWritable opens an image for reading and writing. It fails with syscall.EBUSY if another process has the image open.
func OpenWritable(path string) (*Volume, error) { return open(path, 0) }

func open(path string, flags C.unsigned) (*Volume, error) {
	if err := noNUL("open", path); err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	v := new(Volume)
	_, err := at("open", path, func() C.ssize_t {
		return C.ssize_t(C.extant_open(a.str(path), flags, &v.handle))
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Close makes everything durable and ends the volume. Close its files first.
func (v *Volume) Close() error {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.handle == nil {
		return fs.ErrClosed
	}
	_, err := call(func() C.ssize_t { return C.ssize_t(C.extant_close(v.handle)) })
	v.handle = nil
	v.forget()
	return err
}

// use calls f with the open volume.
func (v *Volume) use(op, name string, f func(h *C.extant_volume) C.ssize_t) (int, error) {
	v.lock.RLock()
	defer v.lock.RUnlock()
	if v.handle == nil {
		return 0, &fs.PathError{Op: op, Path: name, Err: fs.ErrClosed}
	}
	return at(op, name, func() C.ssize_t { return f(v.handle) })
}

// path is use for a name, which f receives as the library's path.
func (v *Volume) path(op, name string, f func(h *C.extant_volume, path *C.char) C.ssize_t) (int, error) {
	if !fs.ValidPath(name) || hasNUL(name) {
		return 0, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	c := C.CString("/" + name)
	defer C.free(unsafe.Pointer(c))
	return v.use(op, name, func(h *C.extant_volume) C.ssize_t { return f(h, c) })
}

// noNUL returns an error if a path or another string for C contains a NUL, at which C would cut the string off.
func noNUL(op, name string, others ...string) error {
	for _, s := range append(others, name) {
		if hasNUL(s) {
			return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
		}
	}
	return nil
}

func hasNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}

// Sync makes everything durable.
func (v *Volume) Sync() error {
	_, err := v.use("sync", ".", func(h *C.extant_volume) C.ssize_t { return C.ssize_t(C.extant_sync(h)) })
	return err
}

// Usage is the space of a volume.
type Usage struct {
	BlockSize                           int // bytes
	Blocks, FreeBlocks, AvailableBlocks uint64
	Inodes, FreeInodes                  uint64
	UUID                                [16]byte
}

// Usage returns the space of the volume.
func (v *Volume) Usage() (Usage, error) {
	var c C.struct_extant_statfs
	_, err := v.use("statfs", ".", func(h *C.extant_volume) C.ssize_t { return C.ssize_t(C.extant_statfs(h, &c)) })
	u := Usage{
		BlockSize:       int(c.block_size),
		Blocks:          uint64(c.blocks),
		FreeBlocks:      uint64(c.free_blocks),
		AvailableBlocks: uint64(c.available_blocks),
		Inodes:          uint64(c.inodes),
		FreeInodes:      uint64(c.free_inodes),
	}
	for i, b := range c.uuid {
		u.UUID[i] = byte(b)
	}
	return u, err
}

// Grow grows the open volume to a number of bytes, or with 0 to the end of its device, and returns the new size.
func (v *Volume) Grow(size int64) (int64, error) {
	var grown C.uint64_t
	_, err := v.use("grow", ".", func(h *C.extant_volume) C.ssize_t {
		return C.ssize_t(C.extant_grow(h, C.uint64_t(size), &grown))
	})
	return int64(grown), err
}
