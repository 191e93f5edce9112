"""Every public name has a docstring and a type, and the stub of the native module is as the module is."""

import ast
import inspect
import types
from pathlib import Path

import extant
import extant.fs
from extant import _extant

PACKAGE = Path(extant.__file__).parent


def members():
    """Public names of the package, and of its classes."""
    for name in [*extant.__all__, "fs.Ext4FileSystem"]:
        value = extant
        for part in name.split("."):
            value = getattr(value, part)
        yield name, value
        if inspect.isclass(value):
            for inner, member in vars(value).items():
                if not inner.startswith("_"):
                    yield f"{name}.{inner}", member


def is_code(member):
    return isinstance(member, (types.FunctionType, property, classmethod, staticmethod)) or inspect.isclass(member)


def test_every_public_name_has_a_docstring():
    without = []
    for name, member in members():
        top, _, inner = name.rpartition(".")
        if top and not isinstance(member, property):
            # A method may have the docstring of the class that it overrides.
            owner = extant
            for part in top.split("."):
                owner = getattr(owner, part)
            member = getattr(owner, inner)
        if (callable(member) or is_code(member)) and not inspect.getdoc(member):
            without.append(name)
    assert not without


def test_every_parameter_and_result_has_a_type():
    without = []
    for name, member in members():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType):
            missing = [p for p in inspect.signature(function).parameters if p not in ("self", "cls") and p not in function.__annotations__]
            if missing or "return" not in function.__annotations__:
                without.append((name, missing))
    assert not without


def test_the_stub_is_as_the_native_module():
    stub = ast.parse((PACKAGE / "_extant.pyi").read_text())
    described = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            described[node.name] = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            described[node.name] = {argument.arg for argument in node.args.args + node.args.kwonlyargs}
    there = {}
    for name in dir(_extant):
        value = getattr(_extant, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if inspect.isclass(value):
            native = value.__module__ != "builtins" and name.startswith("Native")
            there[name] = {inner for inner in vars(value) if not inner.startswith("_")} if native else set()
        else:
            there[name] = set(inspect.signature(value).parameters)
    for name in there:
        if name.startswith("Native") or name == "CorruptError":
            assert described[name] == there[name], name
        else:
            assert len(described[name]) == len(there[name]), name
    assert described.keys() == there.keys()
    assert (PACKAGE / "py.typed").exists()
