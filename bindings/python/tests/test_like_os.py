"""Random operations through the module and through ``os`` on a kernel mount of ext4: results and trees must be equal.

Without root, or without loop devices, a directory of the host takes the place of the kernel mount. A warning says so.
"""

import os
import subprocess
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import extant

names = st.sampled_from(["a", "b", "c", "d", "a/x", "a/y", "a/z", "b/x", "b/y", "b/x/deep"])
contents = st.binary(max_size=9000)
attributes = st.sampled_from(["user.note", "user.other", "trusted.x"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, contents),
        st.tuples(st.just("append"), names, contents),
        st.tuples(st.just("overwrite"), names, contents, st.integers(0, 20_000)),
        st.tuples(st.just("read"), names),
        st.tuples(st.just("mkdir"), names),
        st.tuples(st.just("unlink"), names),
        st.tuples(st.just("rmdir"), names),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("link"), names, names),
        st.tuples(st.just("symlink"), names, st.sampled_from(["a", "c", "../c", "b/x", "nowhere"])),
        st.tuples(st.just("readlink"), names),
        st.tuples(st.just("truncate"), names, st.integers(0, 20_000)),
        st.tuples(st.just("chmod"), names, st.integers(0o400, 0o777)),
        st.tuples(st.just("utime"), names, st.integers(0, 10**18)),
        st.tuples(st.just("setxattr"), names, attributes, st.binary(max_size=300)),
        st.tuples(st.just("removexattr"), names, attributes),
    ),
    min_size=5,
    max_size=40,
)
# Every example starts with these, because most random operations on an empty tree would only fail.
START = [
    ("mkdir", "a"),
    ("mkdir", "b"),
    ("mkdir", "b/x"),
    ("write", "c", b"content\n"),
    ("write", "a/x", bytes(5000)),
    ("write", "b/x/deep", b""),
    ("symlink", "a/y", "../c"),
]


class Host:
    """The reference: a directory of a kernel mount, or a directory of the host."""

    def __init__(self, directory, mounts):
        self.directory = directory
        self.mounts = mounts
        self.examples = 0

    def new_root(self):
        """Returns a new directory in a directory of its own, because a link to "../c" that moves to the top leads out of it."""
        self.examples += 1
        root = self.directory / str(self.examples) / "top"
        root.mkdir(parents=True)
        return root

    def takes(self, operation):
        """Returns the operation as the reference can do it: another file system may have no extended attributes, and an ordinary user keeps
        access to the files, because the module does not look at permissions."""
        if not self.mounts and operation[0] in ("setxattr", "removexattr"):
            return None
        if os.geteuid() != 0 and operation[0] == "chmod":
            return (*operation[:2], operation[2] | 0o700)
        return operation


def mount(image, where, options):
    """Mounts the image on a loop device, which goes when the image is unmounted."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "ext4", "-o", f"loop,{options}", image, where], check=True, capture_output=True, text=True)


def unmount(where):
    if subprocess.run(["umount", where], capture_output=True).returncode != 0:
        # A failed test may hold files of the mount: detach it now, and the loop device goes with the last file.
        subprocess.run(["umount", "--lazy", where], check=True)


def refusal(error):
    return f"{error.stderr or error}".strip()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("host")
    image, where = scratch / "kernel.img", scratch / "mount"
    before = os.umask(0o022)
    try:
        reason = None if os.geteuid() == 0 else "only root can mount"
        if reason is None:
            subprocess.run(["mke2fs", "-q", "-t", "ext4", image, "64M"], check=True)
            try:
                mount(image, where, "rw")
            except subprocess.CalledProcessError as error:
                if os.environ.get("CI"):
                    raise
                reason = refusal(error)
        if reason is not None:
            warnings.warn(f"the module is compared with a directory of the host, not with a kernel mount of ext4: {reason}")
            yield Host(scratch, mounts=False)
            return
        try:
            yield Host(where, mounts=True)
        finally:
            unmount(where)
    finally:
        os.umask(before)


def change(root, path, kind, more):
    """Does one operation; returns what it reads."""
    ours = not isinstance(path, Path)
    if kind == "write":
        path.write_bytes(more[0])
    elif kind == "append":
        with path.open("ab") as file:
            file.write(more[0])
    elif kind == "overwrite":
        with path.open("r+b") as file:
            file.seek(more[1])
            file.write(more[0])
    elif kind == "read":
        return path.read_bytes()
    elif kind == "readlink":
        return str(path.readlink())
    elif kind in ("mkdir", "unlink", "rmdir"):
        getattr(path, kind)()
    elif kind == "rename":
        path.rename(root / more[0])
    elif kind == "link":
        # POSIX leaves to the system what a link to a symbolic link is. Both sides link the symbolic link itself.
        (root / more[0]).hardlink_to(path) if ours else os.link(path, root / more[0], follow_symlinks=False)
    elif kind == "symlink":
        path.symlink_to(more[0])
    elif kind == "truncate":
        path.truncate(more[0]) if ours else os.truncate(path, more[0])
    elif kind == "chmod":
        path.chmod(more[0])
    elif kind == "utime":
        path.utime(ns=(more[0], more[0])) if ours else os.utime(path, ns=(more[0], more[0]))
    elif kind == "setxattr":
        path.setxattr(*more) if ours else os.setxattr(path, *more)
    elif kind == "removexattr":
        path.removexattr(*more) if ours else os.removexattr(path, *more)
    return None


def apply(root, operation):
    """Does one operation; returns what it reads, or the number of its error."""
    kind, path, *more = operation
    try:
        return change(root, root / path, kind, more)
    except OSError as error:
        return error.errno


def attributes_of(path):
    if not isinstance(path, Path):
        return {name: path.getxattr(name) for name in path.listxattr()}
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def tree(root, xattrs):
    """Everything below a directory that both sides must agree on, by name."""
    found = {}
    todo = [root]
    while todo:
        for path in todo.pop().iterdir():
            name = "/".join(path.parts[len(root.parts):])
            if name == "lost+found":
                continue
            status = path.lstat()
            # Times before 2001 are those that an operation has set; others are of the clock.
            mtime = status.st_mtime_ns if status.st_mtime_ns < 10**18 else None
            if path.is_symlink():
                found[name] = ("link", status.st_nlink, status.st_size, mtime, str(path.readlink()))
                continue
            kept = (status.st_mode, status.st_nlink, mtime, attributes_of(path) if xattrs else None)
            if path.is_dir():
                found[name] = kept
                todo.append(path)
            else:
                found[name] = (*kept, status.st_size, path.read_bytes())
    return found


def without_directories_links(found):
    """File systems other than ext4 may count the links of a directory in another way."""
    return {name: entry[:1] + entry[2:] if len(entry) == 4 else entry for name, entry in found.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_the_module_does_what_os_does(host, tmp_path_factory, operations):
    where = tmp_path_factory.mktemp("like-os")
    image, theirs = where / "disk.img", host.new_root()
    with extant.create(image, size="16M") as volume:
        ours = volume / "top"
        ours.mkdir()
        for operation in filter(None, map(host.takes, START + operations)):
            expected, found = apply(theirs, operation), apply(ours, operation)
            assert found == expected, operation
        expected, found = tree(theirs, host.mounts), tree(ours, host.mounts)
    assert extant.check(image).clean
    if not host.mounts:
        assert without_directories_links(found) == without_directories_links(expected)
        return
    assert found == expected
    # The kernel finds the same in the image of the module.
    mount(image, where / "mount", "ro")
    try:
        assert tree(where / "mount" / "top", xattrs=True) == expected
    finally:
        unmount(where / "mount")
