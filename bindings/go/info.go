package extant

// #include <stdlib.h>
// #include <extant.h>
import "C"

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// Stat is the Sys of the FileInfo of a volume.
type Stat struct {
	Ino, Mode, Links, UID, GID, Rdev uint32
	Size, Blocks                     uint64 // Blocks are of 512 bytes
	Atime, Mtime, Ctime              time.Time
}

func when(t C.struct_extant_time) time.Time { return time.Unix(int64(t.sec), int64(t.nsec)) }

type info struct {
	name string
	stat Stat
}

func makeInfo(name string, c *C.struct_extant_stat) *info {
	return &info{path.Base(name), Stat{
		Ino: uint32(c.ino), Mode: uint32(c.mode), Links: uint32(c.nlink),
		UID: uint32(c.uid), GID: uint32(c.gid), Rdev: uint32(c.rdev),
		Size: uint64(c.size), Blocks: uint64(c.blocks),
		Atime: when(c.atime), Mtime: when(c.mtime), Ctime: when(c.ctime),
	}}
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return int64(i.stat.Size) }
func (i *info) Mode() fs.FileMode  { return mode(i.stat.Mode) }
func (i *info) ModTime() time.Time { return i.stat.Mtime }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }
func (i *info) Sys() any           { return &i.stat }

// mode converts the mode of an inode.
func mode(m uint32) fs.FileMode {
	found := fs.FileMode(m & 0o777)
	for bit, is := range map[uint32]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky,
	} {
		if m&bit != 0 {
			found |= is
		}
	}
	return found | fileType(m)
}

func fileType(m uint32) fs.FileMode {
	switch m & syscall.S_IFMT {
	case syscall.S_IFREG:
		return 0
	case syscall.S_IFDIR:
		return fs.ModeDir
	case syscall.S_IFLNK:
		return fs.ModeSymlink
	case syscall.S_IFBLK:
		return fs.ModeDevice
	case syscall.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFIFO:
		return fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeIrregular
}

// permissions converts a mode to permissions, set-id and sticky bits of an inode.
func permissions(m fs.FileMode) C.uint32_t {
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= syscall.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		bits |= syscall.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		bits |= syscall.S_ISVTX
	}
	return C.uint32_t(bits)
}

// Stat returns the attributes of a name.
func (v *Volume) Stat(name string) (fs.FileInfo, error) {
	var c C.struct_extant_stat
	_, err := v.path("stat", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_stat(h, p, &c))
	})
	if err != nil {
		return nil, err
	}
	return makeInfo(name, &c), nil
}

// Lstat is Stat, but does not follow a symbolic link.
func (v *Volume) Lstat(name string) (fs.FileInfo, error) {
	var c C.struct_extant_stat
	_, err := v.path("lstat", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_lstat(h, p, &c))
	})
	if err != nil {
		return nil, err
	}
	return makeInfo(name, &c), nil
}

// ReadLink returns where a symbolic link leads.
func (v *Volume) ReadLink(name string) (string, error) {
	buffer := make([]byte, 4096)
	n, err := v.path("readlink", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.extant_readlink(h, p, (*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)))
	})
	return string(buffer[:min(n, len(buffer))]), err
}

// EvalSymlinks returns the name of what a name leads to, without symbolic links. Links with absolute targets start at the
// root of the volume.
func (v *Volume) EvalSymlinks(name string) (string, error) {
	buffer := make([]byte, 4096)
	for {
		n, err := v.path("realpath", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
			return C.extant_realpath(h, p, (*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)))
		})
		switch {
		case err != nil:
			return "", err
		case n > len(buffer):
			buffer = make([]byte, n)
		case n == 1:
			return ".", nil
		default:
			return string(buffer[1:n]), nil
		}
	}
}

// entry is a name of a directory, with the attributes that it had when the directory was read.
type entry struct{ *info }

func (e entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e entry) Info() (fs.FileInfo, error) { return e.info, nil }
func (e entry) String() string             { return fs.FormatDirEntry(e) }

// ReadDir returns the entries of a directory with their attributes, by name.
func (v *Volume) ReadDir(name string) ([]fs.DirEntry, error) {
	var dir *C.extant_dir
	_, err := v.path("readdir", name, func(h *C.extant_volume, p *C.char) C.ssize_t {
		return C.ssize_t(C.extant_opendir(h, p, &dir))
	})
	if err != nil {
		return nil, err
	}
	defer C.extant_closedir(dir)
	const most = 64
	found, some := []fs.DirEntry{}, make([]C.struct_extant_direntplus, most)
	for {
		n, err := at("readdir", name, func() C.ssize_t { return C.extant_readdirplus(dir, &some[0], most) })
		if n == 0 {
			slices.SortFunc(found, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
			return found, err
		}
		for i := range some[:n] {
			found = append(found, entry{makeInfo(C.GoString(&some[i].entry.name[0]), &some[i].st)})
		}
	}
}

// ReadFile returns the content of a file.
func (v *Volume) ReadFile(name string) ([]byte, error) {
	file, err := v.OpenFile(name, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if found.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	data := make([]byte, found.Size())
	n, err := file.readAt(data, 0)
	return data[:n], err
}

// exists returns whether an error says that a name exists.
func exists(err error) bool { return errors.Is(err, fs.ErrExist) }
