"""Random operations through the module and through ``os`` on a directory of the host: both must come to the same tree."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import extant

names = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "b/x/deep"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, st.binary(max_size=9000)),
        st.tuples(st.just("mkdir"), names),
        st.tuples(st.just("unlink"), names),
        st.tuples(st.just("rmdir"), names),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("link"), names, names),
        st.tuples(st.just("symlink"), st.sampled_from(["a", "b/x", "nowhere"]), names),
        st.tuples(st.just("truncate"), names, st.integers(0, 20_000)),
        st.tuples(st.just("chmod"), names, st.integers(0o400, 0o777)),
    ),
    max_size=30,
)


def apply(root, operation):
    """Does it; returns the number of the error, if there was one."""
    kind, path, *more = operation
    path = root / path
    try:
        if kind == "write":
            path.write_bytes(more[0])
        elif kind in ("mkdir", "unlink", "rmdir"):
            getattr(path, kind)()
        elif kind == "rename":
            path.rename(root / more[0])
        elif kind == "link":
            # A link to a symbolic link, as POSIX leaves it to the system, is one to the link itself on both sides.
            (root / more[0]).hardlink_to(path) if not isinstance(path, Path) else os.link(path, root / more[0], follow_symlinks=False)
        elif kind == "symlink":
            (root / more[0]).symlink_to(operation[1])
        elif kind == "truncate":
            os.truncate(path, more[0]) if isinstance(path, Path) else path.truncate(more[0])
        elif kind == "chmod":
            path.chmod(more[0])
    except OSError as error:
        return error.errno
    return None


def tree(root):
    found = {}
    todo = [root]
    while todo:
        for path in todo.pop().iterdir():
            name = "/".join(path.parts[len(root.parts):])
            status = path.lstat()
            if path.is_symlink():
                found[name] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[name] = ("directory", status.st_mode, status.st_nlink)
                todo.append(path)
            else:
                found[name] = (status.st_mode, status.st_nlink, path.read_bytes())
    found.pop("lost+found", None)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_the_module_does_what_os_does(tmp_path_factory, operations):
    if os.geteuid() != 0:
        pytest.skip("modes are ignored by root alone")
    where = tmp_path_factory.mktemp("like-os")
    host = where / "host"
    host.mkdir()
    os.umask(0o022)
    with extant.create(where / "disk.img", size="16M") as volume:
        for operation in operations:
            theirs, ours = apply(host, operation), apply(volume.root, operation)
            assert ours == theirs, operation
        kept = {name: entry for name, entry in tree(host).items()}
        # Directories of the host's file system may count their links in another way.
        plain = lambda found: {n: e[:2] if e[0] == "directory" else e for n, e in found.items()}
        assert plain(tree(volume.root)) == plain(kept)
    assert extant.check(where / "disk.img").clean
