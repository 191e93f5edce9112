package extant

// #include <stdlib.h>
// #include <extant.h>
import "C"

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"unsafe"
)

// File is an open file or directory of a volume.
type File struct {
	volume *Volume
	name   string
	lock   sync.RWMutex
	handle *C.extant_file // nil for a directory
	closed bool

	position sync.Mutex
	offset   int64
	entries  []fs.DirEntry // of a directory, those left; nil before the first ReadDir
	appends  bool
}

var (
	_ fs.ReadDirFile     = (*File)(nil)
	_ io.ReadWriteSeeker = (*File)(nil)
	_ io.ReaderAt        = (*File)(nil)
	_ io.WriterAt        = (*File)(nil)
)

// Open opens a file or directory for reading.
func (v *Volume) Open(name string) (fs.File, error) {
	file, err := v.OpenFile(name, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// OpenFile opens a file with the flags of package os; perm is for a file that it creates. A directory is opened for
// reading only. Flags that libextant does not support, such as os.O_SYNC, are syscall.EINVAL.
func (v *Volume) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	if int(C.int(flag)) != flag {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EINVAL}
	}
	file := &File{volume: v, name: name, appends: flag&syscall.O_APPEND != 0}
	_, err := v.path("open", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_open_file(h, p, C.int(flag), permissions(perm), &file.handle))
	})
	if err != nil {
		return nil, err
	}
	if flag&syscall.O_ACCMODE != syscall.O_RDONLY {
		return file, nil // The library opens directories for reading only.
	}
	found, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	if found.IsDir() {
		C.extant_close_file(file.handle)
		file.handle = nil
	}
	return file, nil
}

// Create creates or truncates a file, and opens it for reading and writing.
func (v *Volume) Create(name string) (*File, error) {
	return v.OpenFile(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_TRUNC, 0o644)
}

// Name returns the name that the file was opened by.
func (f *File) Name() string { return f.name }

// Close closes the file.
func (f *File) Close() error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	C.extant_close_file(f.handle)
	f.handle = nil
	return nil
}

// use calls g with the open file.
func (f *File) use(op string, g func(h *C.extant_file) C.ssize_t) (int, error) {
	f.lock.RLock()
	defer f.lock.RUnlock()
	if f.closed {
		return 0, &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	if f.handle == nil {
		return 0, &fs.PathError{Op: op, Path: f.name, Err: syscall.EISDIR}
	}
	return at(op, f.name, func() C.ssize_t { return g(f.handle) })
}

func (f *File) isOpenDir() bool {
	f.lock.RLock()
	defer f.lock.RUnlock()
	return !f.closed && f.handle == nil
}

// Stat returns the attributes of the file.
func (f *File) Stat() (fs.FileInfo, error) {
	if f.isOpenDir() {
		return f.volume.Stat(f.name)
	}
	var c C.struct_extant_stat
	_, err := f.use("stat", func(h *C.extant_file) C.ssize_t { return C.ssize_t(C.extant_fstat(h, &c)) })
	if err != nil {
		return nil, err
	}
	return makeInfo(f.name, &c), nil
}

// readAt reads up to len(p) bytes; fewer at the end of the file are no error.
func (f *File) readAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EINVAL}
	}
	return f.use("read", func(h *C.extant_file) C.ssize_t {
		return C.extant_pread(h, unsafe.Pointer(unsafe.SliceData(p)), C.size_t(len(p)), C.uint64_t(offset))
	})
}

// ReadAt reads len(p) bytes at an offset; fewer bytes come with io.EOF.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.readAt(p, offset)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Read reads from the position of the file.
func (f *File) Read(p []byte) (int, error) {
	f.position.Lock()
	defer f.position.Unlock()
	n, err := f.readAt(p, f.offset)
	f.offset += int64(n)
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// errAppends is the error of package os for the same call.
var errAppends = errors.New("extant: invalid use of WriteAt on file opened with O_APPEND")

// WriteAt writes all of p at an offset. It fails if the file was opened with O_APPEND.
func (f *File) WriteAt(p []byte, offset int64) (int, error) {
	if f.appends {
		return 0, errAppends
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EINVAL}
	}
	return f.writeAt(p, offset)
}

// writeAt writes all of p at an offset, or at the end of a file that was opened with O_APPEND.
func (f *File) writeAt(p []byte, offset int64) (int, error) {
	return f.use("write", func(h *C.extant_file) C.ssize_t {
		return C.extant_pwrite(h, unsafe.Pointer(unsafe.SliceData(p)), C.size_t(len(p)), C.uint64_t(offset))
	})
}

// Write writes all of p at the position of the file, or in one step at its end if it was opened with O_APPEND.
func (f *File) Write(p []byte) (int, error) {
	f.position.Lock()
	defer f.position.Unlock()
	n, err := f.writeAt(p, f.offset)
	f.offset += int64(n)
	if err == nil && f.appends {
		// The library does not say where it wrote. The position is the present end, behind what was written. The bytes
		// are stored, so that a failure here is none of the write.
		if found, failed := f.Stat(); failed == nil {
			f.offset = found.Size()
		}
	}
	return n, err
}

// Seek sets the position of the file.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.position.Lock()
	defer f.position.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		found, err := f.Stat()
		if err != nil {
			return 0, err
		}
		offset += found.Size()
	default:
		offset = -1
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: syscall.EINVAL}
	}
	f.offset, f.entries = offset, nil
	return offset, nil
}

// Truncate changes the size of the file.
func (f *File) Truncate(size int64) error {
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: syscall.EINVAL}
	}
	_, err := f.use("truncate", func(h *C.extant_file) C.ssize_t {
		return C.ssize_t(C.extant_ftruncate(h, C.uint64_t(size)))
	})
	return err
}

// Sync makes data and attributes durable.
func (f *File) Sync() error {
	_, err := f.use("sync", func(h *C.extant_file) C.ssize_t { return C.ssize_t(C.extant_fsync(h)) })
	return err
}

// ReadDir returns the next n entries of a directory, or with n <= 0 all that are left. The directory is read at the first
// call.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	if !f.isOpenDir() {
		_, err := f.Stat()
		if err == nil {
			err = &fs.PathError{Op: "readdir", Path: f.name, Err: syscall.ENOTDIR}
		}
		return nil, err
	}
	f.position.Lock()
	defer f.position.Unlock()
	if f.entries == nil {
		found, err := f.volume.ReadDir(f.name)
		if err != nil {
			return nil, err
		}
		f.entries = found
	}
	if n <= 0 {
		n = len(f.entries)
	} else if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	found := f.entries[:n:n]
	f.entries = f.entries[n:]
	return found, nil
}
