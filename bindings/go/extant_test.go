package extant

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func image(t *testing.T) string { return filepath.Join(t.TempDir(), "disk.img") }

func made(t *testing.T) (*Volume, string) {
	t.Helper()
	path := image(t)
	v, err := Create(path, CreateOptions{Size: 64 << 20, Label: "box"})
	must(t, err)
	return v, path
}

// furnish makes a tree with every kind of file.
func furnish(t *testing.T, v *Volume) {
	t.Helper()
	must(t, v.MkdirAll("a/b/c", 0o755))
	must(t, v.Mkdir("empty", 0o700))
	must(t, v.WriteFile("a/hello", []byte("hello\n"), 0o644))
	must(t, v.WriteFile("a/b/c/large", bytes.Repeat([]byte{7}, 300_000), 0o600))
	must(t, v.WriteFile("a/b/empty", nil, 0o444))
	must(t, v.Symlink("hello", "a/link"))
	must(t, v.Link("a/hello", "a/second"))
	for n := range 200 {
		must(t, v.WriteFile(fmt.Sprintf("a/b/f%d", n), []byte(fmt.Sprint(n)), 0o644))
	}
}

func TestFS(t *testing.T) {
	v, path := made(t)
	furnish(t, v)
	must(t, v.Close())
	v, err := Open(path)
	must(t, err)
	defer v.Close()
	must(t, fstest.TestFS(v, "a/hello", "a/b/c/large", "a/link", "a/second", "empty", "a/b/f199"))
	files, err := fs.Glob(v, "a/b/f1?")
	if err != nil || len(files) != 10 {
		t.Fatal(files, err)
	}
	data, err := fs.ReadFile(v, "a/link")
	if err != nil || string(data) != "hello\n" {
		t.Fatalf("%q %v", data, err)
	}
	if err := v.WriteFile("new", nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
}

func TestErrors(t *testing.T) {
	v, _ := made(t)
	_, err := v.Open("none")
	var library *Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &library) || library.Errno != syscall.ENOENT {
		t.Fatal(err)
	}
	if err := v.Mkdir("/absolute", 0o755); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if err := v.Mkdir("nul\x00", 0o755); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	must(t, v.Mkdir("d", 0o755))
	if err := v.Mkdir("d", 0o755); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := v.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := v.Create("d/f")
	must(t, err)
	if _, err := v.OpenFile("d/f", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := v.Remove("d"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Fatal(err)
	}
	must(t, file.Close())
	if err := file.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := file.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	must(t, v.RemoveAll("d"))
	must(t, v.RemoveAll("d"))
	must(t, v.Close())
	if err := v.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	if err := v.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := Open("/nonexistent/image"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	v, path := made(t)
	file, err := v.Create("f")
	must(t, err)
	_, err = io.WriteString(file, "0123456789")
	must(t, err)
	_, err = file.WriteAt([]byte("xy"), 20)
	must(t, err)
	_, err = file.Seek(8, io.SeekStart)
	must(t, err)
	data, err := io.ReadAll(file)
	if err != nil || string(data) != "89"+string(make([]byte, 10))+"xy" {
		t.Fatalf("%q %v", data, err)
	}
	if n, err := file.ReadAt(data, 19); n != 3 || err != io.EOF {
		t.Fatal(n, err)
	}
	must(t, file.Truncate(4))
	must(t, file.Sync())
	must(t, file.Close())
	log, err := v.OpenFile("f", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = io.WriteString(log, "more")
	must(t, err)
	must(t, log.Close())
	if data, err := v.ReadFile("f"); err != nil || string(data) != "0123more" {
		t.Fatalf("%q %v", data, err)
	}
	must(t, v.Rename("f", "g"))
	must(t, v.Setxattr("g", "user.note", []byte("value")))
	if value, err := v.Getxattr("g", "user.note"); err != nil || string(value) != "value" {
		t.Fatalf("%q %v", value, err)
	}
	if names, err := v.Listxattr("g"); err != nil || len(names) != 1 || names[0] != "user.note" {
		t.Fatal(names, err)
	}
	must(t, v.Removexattr("g", "user.note"))
	must(t, v.Truncate("g", 100))
	must(t, v.Chown("g", 1000, -1))
	must(t, v.Chmod("g", 0o640|fs.ModeSetuid))
	then := time.Unix(1_000_000_000, 5)
	must(t, v.Chtimes("g", time.Time{}, then))
	found, err := v.Stat("g")
	must(t, err)
	stat := found.Sys().(*Stat)
	if found.Mode() != 0o640|fs.ModeSetuid || found.Size() != 100 || !found.ModTime().Equal(then) || stat.UID != 1000 || stat.GID != 0 {
		t.Fatal(fs.FormatFileInfo(found), stat)
	}
	must(t, v.Symlink("nowhere", "dangling"))
	if target, err := v.ReadLink("dangling"); err != nil || target != "nowhere" {
		t.Fatal(target, err)
	}
	must(t, v.Symlink("/", "top"))
	for name, want := range map[string]string{"top": ".", "top/dangling": "", ".": "."} {
		if found, err := v.EvalSymlinks(name); found != want || (err == nil) != (want != "") {
			t.Fatal(name, found, err)
		}
	}
	if found, err := v.Lstat("dangling"); err != nil || found.Mode().Type() != fs.ModeSymlink {
		t.Fatal(found, err)
	}
	must(t, v.Close())
	if report, err := Check(path); err != nil || report.Faults != 0 {
		t.Fatal(report, err)
	}
}

func TestOpenFlags(t *testing.T) {
	v, _ := made(t)
	must(t, v.Mkdir("d", 0o755))
	must(t, v.WriteFile("f", []byte("0123"), 0o644))
	must(t, v.Symlink("d", "link"))
	for _, c := range []struct {
		name string
		flag int
		want error
	}{
		{"f", os.O_RDWR | os.O_SYNC, syscall.EINVAL},
		{"f", syscall.O_ACCMODE, syscall.EINVAL},
		{"d", 0o20000000 | os.O_RDWR, syscall.EINVAL},
		{"f", syscall.O_DIRECTORY, syscall.ENOTDIR},
		{"f", syscall.O_DIRECTORY | os.O_TRUNC, syscall.ENOTDIR},
		{"d", os.O_RDONLY | os.O_TRUNC, syscall.EISDIR},
		{"d", os.O_RDWR, syscall.EISDIR},
		{"link", syscall.O_NOFOLLOW, syscall.ELOOP},
		{"d", syscall.O_DIRECTORY, nil},
		{"link", os.O_RDONLY, nil},
		{"f", os.O_RDONLY | syscall.O_CLOEXEC, nil},
	} {
		file, err := v.OpenFile(c.name, c.flag, 0)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Fatalf("%s with %#o: %v", c.name, c.flag, err)
		}
		if err == nil {
			must(t, file.Close())
		}
	}
	// Two files append in turn, and neither overwrites what the other has written.
	var logs [2]*File
	for i := range logs {
		log, err := v.OpenFile("f", os.O_RDWR|os.O_APPEND, 0)
		must(t, err)
		logs[i] = log
	}
	for i := range 4 {
		if n, err := io.WriteString(logs[i%2], fmt.Sprint(i)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := logs[0].WriteAt([]byte("x"), 0); err == nil {
		t.Fatal("a file that appends was written at an offset")
	}
	if at, err := logs[1].Seek(0, io.SeekCurrent); at != 8 || err != nil {
		t.Fatal(at, err)
	}
	for _, log := range logs {
		must(t, log.Close())
	}
	if data, err := v.ReadFile("f"); err != nil || string(data) != "01230123" {
		t.Fatalf("%q %v", data, err)
	}
	must(t, v.Close())
}

func TestArguments(t *testing.T) {
	v, path := made(t)
	must(t, v.WriteFile("f", []byte("0123"), 0o644))
	file, err := v.OpenFile("f", os.O_RDWR, 0)
	must(t, err)
	if err := file.Truncate(-1); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	must(t, file.Close())
	if err := v.Truncate("f", -1); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	// A string for C ends at a NUL, so that none may be in it.
	if err := v.Setxattr("f", "user.a\x00b", nil); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if err := v.CopyTreeIn("/tmp\x00x", "tree"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	must(t, v.Close())
	if _, err := Open(path + "\x00x"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := Check(path + "\x00x"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := Resize(path, 0, ChangeOptions{SafeOnly: true}); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
}

// memory is a device.
type memory struct {
	lock  sync.Mutex
	bytes []byte
	syncs int
	fail  error
}

func (m *memory) Size() int64 { return int64(len(m.bytes)) }

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return copy(p, m.bytes[at:]), nil
}

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return copy(m.bytes[at:], p), nil
}

func (m *memory) Sync() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.syncs++
	return m.fail
}

func TestDevice(t *testing.T) {
	v, path := made(t)
	must(t, v.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	device := &memory{bytes: data}
	v, err = OpenDevice(device, true)
	must(t, err)
	must(t, v.WriteFile("in memory", []byte("x"), 0o600))
	must(t, v.Close())
	if device.syncs == 0 {
		t.Fatal("nothing was flushed")
	}
	v, err = OpenDevice(device, false)
	must(t, err)
	if data, err := v.ReadFile("in memory"); err != nil || string(data) != "x" {
		t.Fatal(data, err)
	}
	must(t, v.Close())
	v, err = OpenDevice(device, true)
	must(t, err)
	device.fail = syscall.ENOSPC
	must(t, v.Mkdir("lost", 0o700))
	if err := v.Sync(); err == nil {
		t.Fatal("the error of the device is lost")
	}
	v.Close()
	if _, err := OpenDevice(&memory{bytes: make([]byte, 1<<20)}, false); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
}

// broken panics at every write.
type broken struct{ *memory }

func (broken) WriteAt([]byte, int64) (int, error) { panic("broken") }

func TestDevicePanics(t *testing.T) {
	v, path := made(t)
	must(t, v.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	v, err = OpenDevice(broken{&memory{bytes: data}}, true)
	if err == nil {
		must(t, v.Mkdir("lost", 0o700))
		err = v.Sync()
		v.Close()
	}
	if !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

func TestClosedImages(t *testing.T) {
	v, path := made(t)
	furnish(t, v)
	if _, err := Resize(path, 0, ChangeOptions{}); !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	must(t, v.Close())
	label, percent := "renamed", 1.5
	changes, err := Tune(path, TuneOptions{Label: &label, ReservedPercent: &percent}, ChangeOptions{})
	if err != nil || changes != 2 {
		t.Fatal(changes, err)
	}
	if _, err := Tune(path, TuneOptions{Features: "none_such"}, ChangeOptions{}); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	size, err := Resize(path, 0, ChangeOptions{})
	if err != nil || size >= 32<<20 {
		t.Fatal(size, err)
	}
	v, err = OpenWritable(path)
	must(t, err)
	if grown, err := v.Grow(64 << 20); err != nil || grown != 64<<20 {
		t.Fatal(grown, err)
	}
	must(t, v.Close())

	// A volume with recorded errors.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt([]byte{9, 0}, 1024+58) // the state
	must(t, err)
	must(t, file.Close())
	report, err := Check(path)
	if err != nil || report.Faults == 0 || len(report.Findings) == 0 || report.Findings[0].Rule == "" {
		t.Fatal(report, err)
	}
	undo := filepath.Join(t.TempDir(), "undo")
	if done, err := Repair(path, ChangeOptions{DryRun: true}); err != nil || done.FaultsAfter != 0 {
		t.Fatal(done, err)
	}
	if done, err := Repair(path, ChangeOptions{Undo: undo}); err != nil || done.Mends == 0 || done.FaultsAfter != 0 {
		t.Fatal(done, err)
	}
	if _, err := os.Stat(undo); err != nil {
		t.Fatal(err)
	}
	if report, err := Check(path); err != nil || report.Faults != 0 {
		t.Fatal(report, err)
	}
}

// full is a destination that takes nothing.
type full struct{ calls int }

var errFull = errors.New("full")

func (f *full) Write([]byte) (int, error) {
	f.calls++
	return 0, errFull
}

func TestFailedExports(t *testing.T) {
	v, _ := made(t)
	furnish(t, v)
	out := new(full)
	if err := v.Export("a", out, "tar"); err != errFull || out.calls != 1 {
		t.Fatal(err, out.calls)
	}
	if err := v.Export("none", out, "tar"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := v.Export("a", out, "zip"); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	must(t, v.Close())
}

func TestTrees(t *testing.T) {
	v, _ := made(t)
	furnish(t, v)
	out := filepath.Join(t.TempDir(), "out")
	must(t, v.CopyTreeOut("a", out))
	must(t, v.CopyTreeIn(out, "again"))
	archive := filepath.Join(t.TempDir(), "a.tar")
	must(t, exec.Command("tar", "-C", out, "-cf", archive, ".").Run())
	must(t, v.Import(archive, "imported"))
	packed, err := os.Create(filepath.Join(t.TempDir(), "a.tar.zst"))
	must(t, err)
	must(t, v.Export("a", packed, "tar.zst"))
	must(t, packed.Close())
	must(t, v.Import(packed.Name(), "back"))
	for _, top := range []string{"again", "imported", "back"} {
		data, err := v.ReadFile(top + "/b/c/large")
		if err != nil || len(data) != 300_000 {
			t.Fatal(len(data), err)
		}
	}
	must(t, v.Close())
	filled, err := Create(image(t), CreateOptions{Source: archive})
	must(t, err)
	if usage, err := filled.Usage(); err != nil || usage.Blocks == 0 || usage.UUID == [16]byte{} {
		t.Fatal(usage, err)
	}
	must(t, filled.Close())
}

func TestThreads(t *testing.T) {
	v, path := made(t)
	var wait sync.WaitGroup
	failed := make(chan error, 8)
	for task := range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := range 200 {
				name := fmt.Sprintf("t%d-%d", task, n)
				if err := v.WriteFile(name, []byte(name), 0o644); err != nil {
					failed <- err
					return
				}
				if data, err := v.ReadFile(name); err != nil || string(data) != name {
					failed <- fmt.Errorf("%s: %q %w", name, data, err)
					return
				}
				// The message is that of this goroutine's call.
				if _, err := v.Stat("none-" + name); !errors.Is(err, fs.ErrNotExist) {
					failed <- err
					return
				}
			}
		}()
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
	must(t, v.Close())
	if report, err := Check(path); err != nil || report.Faults != 0 {
		t.Fatal(report, err)
	}
}

func BenchmarkWriteFile(b *testing.B) {
	v, err := Create(filepath.Join(b.TempDir(), "disk.img"), CreateOptions{Size: 4 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	for n := 0; b.Loop(); n++ {
		if err := v.WriteFile(fmt.Sprint(n), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
}
