package extant

/*
#include <stdlib.h>
#include <extant.h>
extern int goExtantOutput(void *user, void *bytes, size_t length);
*/
import "C"

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"runtime/cgo"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// two calls f with two paths of the volume.
func (v *Volume) two(op, from, to string, f func(h *C.extant_volume, from, to *C.char) C.ssize_t) error {
	if !fs.ValidPath(to) || hasNUL(to) {
		return &fs.PathError{Op: op, Path: to, Err: fs.ErrInvalid}
	}
	c := C.CString("/" + to)
	defer C.free(unsafe.Pointer(c))
	_, err := v.path(op, from, func(h *C.extant_volume, p *C.char) C.ssize_t { return f(h, p, c) })
	return err
}

// Mkdir makes a directory.
func (v *Volume) Mkdir(name string, perm fs.FileMode) error {
	_, err := v.path("mkdir", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_mkdir(h, p, permissions(perm)))
	})
	return err
}

// MkdirAll makes a directory and its parents. A directory that exists is left as it is.
func (v *Volume) MkdirAll(name string, perm fs.FileMode) error {
	err := v.Mkdir(name, perm)
	if errors.Is(err, fs.ErrNotExist) && name != "." {
		if err := v.MkdirAll(path.Dir(name), perm); err != nil {
			return err
		}
		err = v.Mkdir(name, perm)
	}
	if exists(err) {
		if found, err := v.Stat(name); err == nil && found.IsDir() {
			return nil
		}
	}
	return err
}

// Remove removes a file or an empty directory.
func (v *Volume) Remove(name string) error {
	_, err := v.path("remove", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_unlink(h, p))
	})
	if !errors.Is(err, syscall.EISDIR) {
		return err
	}
	_, err = v.path("remove", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_rmdir(h, p))
	})
	return err
}

// RemoveAll removes a path and everything below it. A path that does not exist is no error.
func (v *Volume) RemoveAll(name string) error {
	err := v.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	entries, err := v.ReadDir(name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := v.RemoveAll(path.Join(name, entry.Name())); err != nil {
			return err
		}
	}
	return v.Remove(name)
}

// Rename renames a file or directory; a file of the new name is replaced in one step.
func (v *Volume) Rename(from, to string) error {
	return v.two("rename", from, to, func(h *C.extant_volume, from, to *C.char) C.ssize_t {
		return C.ssize_t(C.extant_rename(h, from, to))
	})
}

// Link makes a second name for a file.
func (v *Volume) Link(from, to string) error {
	return v.two("link", from, to, func(h *C.extant_volume, from, to *C.char) C.ssize_t {
		return C.ssize_t(C.extant_link(h, from, to))
	})
}

// Symlink makes a symbolic link to target, which may be any text without NUL.
func (v *Volume) Symlink(target, name string) error {
	if hasNUL(target) {
		return &fs.PathError{Op: "symlink", Path: name, Err: fs.ErrInvalid}
	}
	c := C.CString(target)
	defer C.free(unsafe.Pointer(c))
	_, err := v.path("symlink", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_symlink(h, c, p))
	})
	return err
}

// Chmod sets permissions, set-id and sticky bits.
func (v *Volume) Chmod(name string, mode fs.FileMode) error {
	_, err := v.path("chmod", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_chmod(h, p, permissions(mode)))
	})
	return err
}

// Chown sets owner and group; -1 leaves one unchanged.
func (v *Volume) Chown(name string, uid, gid int) error {
	_, err := v.path("chown", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_chown(h, p, C.uint32_t(uid), C.uint32_t(gid)))
	})
	return err
}

// Chtimes sets the times of access and modification; a zero time is the present.
func (v *Volume) Chtimes(name string, atime, mtime time.Time) error {
	var a, m C.struct_extant_time
	given := func(c *C.struct_extant_time, t time.Time) *C.struct_extant_time {
		if t.IsZero() {
			return nil
		}
		c.sec, c.nsec = C.int64_t(t.Unix()), C.uint32_t(t.Nanosecond())
		return c
	}
	_, err := v.path("chtimes", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_utimens(h, p, given(&a, atime), given(&m, mtime)))
	})
	return err
}

// Truncate changes the size of a file.
func (v *Volume) Truncate(name string, size int64) error {
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: name, Err: syscall.EINVAL}
	}
	_, err := v.path("truncate", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_truncate(h, p, C.uint64_t(size)))
	})
	return err
}

// WriteFile creates or truncates a file, and writes data to it.
func (v *Volume) WriteFile(name string, data []byte, perm fs.FileMode) error {
	file, err := v.OpenFile(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	return errors.Join(err, file.Close())
}

// xattr calls f with a path and the name of an extended attribute.
func (v *Volume) xattr(op, name, attr string, f func(h *C.extant_volume, p, attr *C.char) C.ssize_t) (int, error) {
	if err := noNUL(op, name, attr); err != nil {
		return 0, err
	}
	c := C.CString(attr)
	defer C.free(unsafe.Pointer(c))
	return v.path(op, name, func(h *C.extant_volume, p *C.char) C.ssize_t { return f(h, p, c) })
}

// Getxattr returns the value of an extended attribute, such as "user.note".
// The attributes of a symbolic link are its own: the link is not followed.
func (v *Volume) Getxattr(name, attr string) ([]byte, error) {
	value := make([]byte, 1<<16)
	n, err := v.xattr("getxattr", name, attr, func(h *C.extant_volume, p, attr *C.char) C.ssize_t {
		return C.extant_getxattr(h, p, attr, unsafe.Pointer(&value[0]), C.size_t(len(value)))
	})
	return value[:n:n], err
}

// Setxattr sets an extended attribute.
func (v *Volume) Setxattr(name, attr string, value []byte) error {
	_, err := v.xattr("setxattr", name, attr, func(h *C.extant_volume, p, attr *C.char) C.ssize_t {
		return C.ssize_t(C.extant_setxattr(h, p, attr, unsafe.Pointer(unsafe.SliceData(value)), C.size_t(len(value))))
	})
	return err
}

// Removexattr removes an extended attribute.
func (v *Volume) Removexattr(name, attr string) error {
	_, err := v.xattr("removexattr", name, attr, func(h *C.extant_volume, p, attr *C.char) C.ssize_t {
		return C.ssize_t(C.extant_removexattr(h, p, attr))
	})
	return err
}

// Listxattr returns the names of the extended attributes.
func (v *Volume) Listxattr(name string) ([]string, error) {
	list := make([]byte, 1<<16)
	n, err := v.path("listxattr", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.extant_listxattr(h, p, (*C.char)(unsafe.Pointer(&list[0])), C.size_t(len(list)))
	})
	if n == 0 {
		return nil, err
	}
	return strings.Split(string(list[:n-1]), "\x00"), nil
}

// CopyTreeIn copies a directory of the host into the volume, with all attributes, by several threads. The new name must not
// exist.
func (v *Volume) CopyTreeIn(from, to string) error {
	return v.transfer("copy", from, to, func(h *C.extant_volume, host, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_copy_tree_in(h, host, p, nil, nil))
	})
}

// CopyTreeOut copies a directory of the volume to the host, likewise.
func (v *Volume) CopyTreeOut(from, to string) error {
	return v.transfer("copy", to, from, func(h *C.extant_volume, host, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_copy_tree_out(h, p, host, nil, nil))
	})
}

// Import extracts an archive of the host (tar, cpio or SquashFS, plain or compressed) into a directory, which is made if it
// does not exist. Directories are merged, and files of the same name are replaced.
func (v *Volume) Import(archive, to string) error {
	return v.transfer("import", archive, to, func(h *C.extant_volume, host, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_import(h, host, p, nil, nil))
	})
}

// exporting is the destination of an export, and its own error.
type exporting struct {
	out io.Writer
	err error
}

// Export writes the contents of a directory, or one file, to out as an archive, by several threads that read. The format is "tar", "tar.gz",
// "tar.zst", "cpio", "cpio.gz" or "cpio.zst". An error of out is returned as it is.
func (v *Volume) Export(from string, out io.Writer, format string) error {
	if err := noNUL("export", from, format); err != nil {
		return err
	}
	var a arena
	defer a.free()
	to := &exporting{out: out}
	user, release := passed(to)
	defer release()
	_, err := v.path("export", from, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_export(h, p, a.str(format), (*[0]byte)(C.goExtantOutput), nil, user))
	})
	if to.err != nil {
		return to.err
	}
	return err
}

//export goExtantOutput
func goExtantOutput(user, bytes unsafe.Pointer, length C.size_t) C.int {
	to := (*(*cgo.Handle)(user)).Value().(*exporting)
	if _, to.err = to.out.Write(unsafe.Slice((*byte)(bytes), int(length))); to.err != nil {
		return C.int(syscall.EIO)
	}
	return 0
}

func (v *Volume) transfer(op, host, name string, f func(h *C.extant_volume, host, p *C.char) C.ssize_t) error {
	if err := noNUL(op, host); err != nil {
		return err
	}
	c := C.CString(host)
	defer C.free(unsafe.Pointer(c))
	_, err := v.path(op, name, func(h *C.extant_volume, p *C.char) C.ssize_t { return f(h, c, p) })
	return err
}
