package extant

/*
#include <stdlib.h>
#include <extant.h>
extern int goExtantRead(void *user, uint64_t offset, void *buffer, size_t length);
extern int goExtantWrite(void *user, uint64_t offset, void *buffer, size_t length);
extern int goExtantFlush(void *user);
*/
import "C"

import (
	"errors"
	"io"
	"runtime/cgo"
	"syscall"
	"unsafe"
)

// Device is the storage of an image, such as memory or an object on a server. The methods are called by several threads
// at once. A panic of a method is the error syscall.EIO.
type Device interface {
	io.ReaderAt
	io.WriterAt
	// Size returns the number of bytes; it does not change.
	Size() int64
	// Sync makes everything written durable.
	Sync() error
}

// OpenDevice opens an image in storage of the caller's, for reading only or for writing.
func OpenDevice(device Device, writable bool) (*Volume, error) {
	user, release := passed(device)
	v := &Volume{release: release}
	var flags C.unsigned = C.EXTANT_READ_ONLY
	c := C.struct_extant_device{user: user, size: C.uint64_t(device.Size()), read: (*[0]byte)(C.goExtantRead)}
	if writable {
		flags = 0
		c.write, c.flush = (*[0]byte)(C.goExtantWrite), (*[0]byte)(C.goExtantFlush)
	}
	_, err := at("open", "device", func() C.ssize_t { return C.ssize_t(C.extant_open_device(&c, flags, &v.handle)) })
	if err != nil {
		v.forget()
		return nil, err
	}
	return v, nil
}

// passed makes memory of C that holds a handle of value, for callbacks, until release is called.
func passed(value any) (user unsafe.Pointer, release func()) {
	user = C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	*(*cgo.Handle)(user) = cgo.NewHandle(value)
	return user, func() {
		(*(*cgo.Handle)(user)).Delete()
		C.free(user)
	}
}

// forget releases the device of a volume that is closed.
func (v *Volume) forget() {
	if v.release != nil {
		v.release()
		v.release = nil
	}
}

func deviceOf(user unsafe.Pointer) Device { return (*(*cgo.Handle)(user)).Value().(Device) }

// result returns the number of an error.
func result(err error) C.int {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno) && errno != 0:
		return -C.int(errno)
	}
	return -C.int(syscall.EIO)
}

// caught turns a panic of a device into an error, because a panic would skip the frames of the library and leave its locks held.
func caught(failed *C.int) {
	if recover() != nil {
		*failed = -C.int(syscall.EIO)
	}
}

//export goExtantRead
func goExtantRead(user unsafe.Pointer, offset C.uint64_t, buffer unsafe.Pointer, length C.size_t) (failed C.int) {
	defer caught(&failed)
	n, err := deviceOf(user).ReadAt(unsafe.Slice((*byte)(buffer), int(length)), int64(offset))
	if n == int(length) {
		return 0
	}
	return result(errors.Join(err, io.ErrUnexpectedEOF))
}

//export goExtantWrite
func goExtantWrite(user unsafe.Pointer, offset C.uint64_t, buffer unsafe.Pointer, length C.size_t) (failed C.int) {
	defer caught(&failed)
	_, err := deviceOf(user).WriteAt(unsafe.Slice((*byte)(buffer), int(length)), int64(offset))
	return result(err)
}

//export goExtantFlush
func goExtantFlush(user unsafe.Pointer) (failed C.int) {
	defer caught(&failed)
	return result(deviceOf(user).Sync())
}
