"""The REPL's namespace as bytes and back: one pickle per variable, so that only changed ones are stored again.

A variable that is reached from another one is not copied into it but named, so two names for one object stay one object, and
classes keep their identity. Functions made in cells are stored by code and defaults and, when restored, see the namespace
of the REPL that they wake up in. What cannot be pickled is reported by name with the reason, never dropped in silence. Runs
only inside the sandbox; the host keeps the bytes and never reads them.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Collection
from hashlib import sha256
from io import BytesIO
from marshal import dumps as dump_code
from marshal import loads as load_code
from typing import Any

import cloudpickle

#: Bytes of one variable and of all: a database row must hold the one, a frame to a fresh REPL the other.
MAX_VALUE, MAX_TOTAL = 512 << 20, 1536 << 20
_ATOMS = (int, float, complex, bool, type(None))
_MAX_NAME = 1000


class NamespaceWriter:
    """Makes snapshots of one namespace and remembers what it has made, to spare unchanged immutable values."""

    def __init__(self, namespace: dict[str, Any], max_value: int = MAX_VALUE, max_total: int = MAX_TOTAL) -> None:
        self._namespace, self._max_value, self._max_total = namespace, max_value, max_total
        #: name -> (the very object, its hash, its bytes); holding the object keeps its id from being reused
        self._unchanged: dict[str, tuple[Any, str, int]] = {}

    def write(
        self, skip: Collection[str], known: Collection[str]
    ) -> tuple[dict[str, str], dict[str, bytes], dict[str, str]]:
        """Pickle every variable not in `skip`.

        Returns (name -> hash of the value, hash -> bytes of values not in `known`, name -> why it was lost).
        """
        lost: dict[str, str] = {}
        names = _storable(self._namespace, skip, lost)
        by_id = {id(v): k for k, v in names.items() if type(v) not in _ATOMS}
        shas: dict[str, str] = {}
        values: dict[str, bytes] = {}
        fresh: dict[str, tuple[Any, str, int]] = {}
        total = 0
        for name, value in names.items():
            held = self._unchanged.get(name)
            if held is not None and held[0] is value:
                shas[name] = held[1]
                fresh[name] = held
                total += held[2]
                continue
            try:
                data = _dump(value, name, by_id, self._namespace)
            except BaseException as error:  # its own code runs here, and may raise anything
                lost[name] = f"{type(value).__name__[:100]}: {why(error)}"
                continue
            if len(data) > self._max_value or total + len(data) > self._max_total:
                lost[name] = f"{type(value).__name__}: {len(data) >> 20} MB are too much to keep; write it to a file"
                continue
            total += len(data)
            sha = sha256(data).hexdigest()
            shas[name] = sha
            if sha not in known:
                values[sha] = data
            if type(value) in (str, bytes, int, float):
                fresh[name] = (value, sha, len(data))
        for name, size in _unsendable(shas, values).items():
            del shas[name]
            fresh.pop(name, None)
            lost[name] = f"{size >> 20} MB are too much to keep beside what else is in memory; write it to a file"
        self._unchanged = fresh
        return shas, values, lost


def restore(namespace: dict[str, Any], shas: dict[str, str], values: dict[str, bytes]) -> dict[str, str]:
    """Fill `namespace` from a snapshot; returns name -> why it could not be restored."""
    lost: dict[str, str] = {}
    loading: set[str] = set()

    def load(name: str) -> Any:
        if name in namespace:
            return namespace[name]
        if name in loading or name not in shas:
            raise pickle.UnpicklingError(f"it needs {name!r}, which is not there")
        loading.add(name)
        try:
            namespace[name] = _Reader(BytesIO(values[shas[name]]), namespace, load).load()
        finally:
            loading.discard(name)
        return namespace[name]

    for name in shas:
        try:
            load(name)
        except BaseException as error:  # its own code runs here, and may raise anything
            lost[name] = why(error)
    return lost


def _storable(namespace: dict[str, Any], skip: Collection[str], lost: dict[str, str]) -> dict[str, Any]:
    """Return what has a name that can be kept; `globals()` takes any object as a key, and any text."""
    names: dict[str, Any] = {}
    for name, value in list(namespace.items()):
        if type(name) is not str:
            lost[f"a variable named by a {type(name).__name__}"[:_MAX_NAME]] = "only text can be a name"
        elif name in skip or name.startswith("__"):
            continue
        elif len(name) > _MAX_NAME or not name.isprintable():
            lost[ascii(name[:60])] = "its name cannot be kept"
        else:
            names[name] = value
    return names


def _unsendable(shas: dict[str, str], values: dict[str, bytes]) -> dict[str, int]:
    """Take out the largest values until a message with the rest fits into the memory that is left; returns name -> size.

    Tried before it is made: the encoder of messages does not survive a lack of memory.
    """
    dropped: dict[str, int] = {}
    while values:
        try:
            bytearray(sum(map(len, values.values())) * 5 // 2)
            break
        except MemoryError:
            sha = max(values, key=lambda sha: len(values[sha]))
            size = len(values.pop(sha))
            dropped |= dict.fromkeys([name for name in shas if shas[name] == sha], size)
    return dropped


def why(error: BaseException) -> str:
    """Say in a line what an object's own code raised."""
    if isinstance(error, KeyboardInterrupt):
        return "it took too long"
    try:
        return f"{type(error).__name__}: {str(error)[:120]}"
    except BaseException:  # its own __str__ fails
        return type(error).__name__


def _dump(value: Any, name: str, by_id: dict[int, str], namespace: dict[str, Any]) -> bytes:
    sink = BytesIO()
    _Writer(sink, value, name, by_id, namespace).dump(value)
    return sink.getvalue()


class _Writer(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, sink: BytesIO, root: Any, name: str, by_id: dict[int, str], namespace: dict[str, Any]) -> None:
        super().__init__(sink, protocol=5)
        self._root, self._name, self._by_id, self._namespace = root, name, by_id, namespace

    def persistent_id(self, obj: Any) -> str | None:
        other = self._by_id.get(id(obj))
        if other is None or other == self._name:
            return None
        if obj is self._root:  # two names for one object: the later name points at the earlier
            return other
        # A pair that refers to each other cannot both be named; the one that is sorted first holds the other.
        if other > self._name and _refers(obj, self._root):
            return None
        return other

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and obj.__globals__ is self._namespace:
            cells = tuple(c.cell_contents for c in obj.__closure__ or ())
            state = (
                obj.__defaults__,
                obj.__kwdefaults__,
                dict(obj.__dict__),
                obj.__doc__,
                obj.__qualname__,
                obj.__module__,
            )
            return (
                _make_function,
                (dump_code(obj.__code__), obj.__name__, len(cells)),
                (state, cells),
                None,
                None,
                _fill,
            )
        return super().reducer_override(obj)


class _Reader(pickle.Unpickler):
    def __init__(self, source: BytesIO, namespace: dict[str, Any], load: Callable[[str], Any]) -> None:
        super().__init__(source)
        self._load_name = load
        self._namespace = namespace

    def persistent_load(self, pid: Any) -> Any:
        return self._load_name(pid)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, "_make_function"):
            namespace = self._namespace
            return lambda code, called, cells: _make_function(code, called, cells, namespace)
        return super().find_class(module, name)


def _make_function(code: bytes, name: str, cells: int, namespace: dict[str, Any] | None = None) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in range(cells))
    return types.FunctionType(load_code(code), {} if namespace is None else namespace, name, None, closure)


def _fill(function: types.FunctionType, state: Any) -> None:
    """Give a function its defaults and closure once it exists, so that it may refer to itself."""
    (defaults, kwdefaults, attributes, doc, qualname, module), cells = state
    function.__defaults__, function.__kwdefaults__ = defaults, kwdefaults
    function.__dict__.update(attributes)
    function.__doc__, function.__qualname__, function.__module__ = doc, qualname, module
    for cell, content in zip(function.__closure__ or (), cells, strict=True):
        cell.cell_contents = content


def _refers(holder: Any, target: Any, depth: int = 6) -> bool:
    """Say whether `holder` reaches `target` through a few levels of containers, attributes or a closure."""
    if depth == 0 or isinstance(holder, (*_ATOMS, str, bytes)):
        return False
    if isinstance(holder, dict):
        inside: Any = list(holder.values())
    elif isinstance(holder, (list, tuple, set, frozenset)):
        inside = holder
    elif isinstance(holder, types.FunctionType):
        inside = [c.cell_contents for c in holder.__closure__ or ()]
    else:
        inside = list(getattr(holder, "__dict__", {}).values())
    if len(inside) > 10_000:
        return False
    return any(item is target or _refers(item, target, depth - 1) for item in inside)
