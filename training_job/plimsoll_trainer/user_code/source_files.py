"""The Python files that an entry point imports, found without running any of them.

In: an entry point (`package.module:function`). Out: its source files, by name. Called
for the fingerprint. The imports of a file are read from its text, those inside of
functions as well, and followed as far as the user's own code goes: libraries stand in
the fingerprint by version, and Python by its own.

    my_model.py         import layers              -> layers.py
                        from parts import block    -> parts/__init__.py, parts/block.py
    notes.py            nobody imports it: it does not count

Code may also load what no text names: by a name that it computes, by a path, from a
folder that it puts on `sys.path`. Whatever refers to a means of doing so, and an import
that finds no module, lets all files around the entry point count: of a package all of
it, of a script all in and below its folder. Files that only a run finds elsewhere, and
those that a library loads by name, are not seen.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from plimsoll_trainer.errors import MissingSourceError

NOT_OURS = ("__pycache__", "site-packages", "dist-packages", "node_modules")
"""Folders that hold no source of a workload."""
PLIMSOLL = "plimsoll_"
"""Beginning of the names of Plimsoll's own packages."""
NAMES_A_MODULE = ("import_module", "__import__")
OPEN_NAMES = (
    *(*NAMES_A_MODULE, "exec_module", "load_module"),
    *("__builtins__", "__loader__", "__path__", "__spec__"),
)
"""Names by which code loads what no import statement names, of whatever they are."""
RUNS_TEXT = ("compile", "eval", "exec")
"""Functions of Python; methods of the same name do something else."""
LOADERS = (
    *("builtins", "code", "codeop", "imp", "importlib.abc", "importlib.machinery"),
    *("importlib.util", "pkgutil", "pydoc", "runpy", "site", "zipimport"),
)
"""Modules of Python that load others by name or path."""
ENTRIES = ("importlib", "sys")
"""Modules of which a part loads others, or says where they lie."""
SEARCHED = ("meta_path", "path", "path_hooks", "path_importer_cache")
"""Of `sys`: where modules are looked for."""
HARMLESS = (*NAMES_A_MODULE, "invalidate_caches", "metadata", "reload", "resources")
"""Of `importlib`: loads nothing new, or is known by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imports:
    """Imports of one file."""

    modules: tuple[str, ...]
    """Full names."""
    members: tuple[str, ...]
    """Full names of what comes out of them, which may be modules as well."""
    is_open: bool
    """It also imports what only its run tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleFiles:
    """Files of the user's own code that an import of one module runs."""

    exists: bool
    """Python finds the module, in this code or in a library."""
    files: tuple[tuple[str, Path], ...] = ()
    """By name relative to where they are found."""
    around: Place | None = None
    """Of the files."""


def source_files(entrypoint: str) -> list[tuple[str, Path]]:
    """Every Python file of a workload, by name relative to where it is found.

    Raises:
        MissingSourceError: there is no such module, or a file cannot be read.
    """
    own, module = home_of(entrypoint), entrypoint.partition(":")[0]
    found, opened = dict[str, Path](), list[Place]()
    waiting, known = [module], {module}
    while waiting:
        ours = files_of(waiting.pop(), own)
        for name, file in ours.files:
            if name in found:
                continue
            found[name] = file
            read = imports_of(name, file)
            if read.is_open or not all(files_of(m, own).exists for m in read.modules):
                opened += [own, *([ours.around] if ours.around else [])]
            new = [m for m in (*read.modules, *read.members) if m not in known]
            waiting += new
            known.update(new)
    for place in opened:
        found |= files_around(place)
    return sorted(found.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Place of a module of the first level."""

    name: str
    root: Path
    """The folder that it is found in."""
    packages: tuple[Path, ...] = ()
    """Its own folders; one without `__init__.py` may be in several places."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders around it: its package, or where the script lies."""
        return self.packages or (self.root,)


def home_of(entrypoint: str) -> Place:
    """Place of an entry point.

    Raises:
        MissingSourceError: there is no such module.
    """
    module = entrypoint.partition(":")[0]
    place = place_of(module.partition(".")[0])
    if place is None:
        raise MissingSourceError(
            f"entry point {entrypoint}: no module {module} on the Python path; check "
            "the name, and that its folder is in PYTHONPATH"
        )
    return place


def place_of(name: str) -> Place | None:
    """Place of a module of the first level; None if it has no source."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.has_location or spec.submodule_search_locations):
        return None
    if spec.submodule_search_locations:
        # A folder without __init__.py is found once for each entry of the path.
        places = (Path(folder).resolve() for folder in spec.submodule_search_locations)
        folders = tuple(dict.fromkeys(places))
        return Place(name=name, root=folders[0].parent, packages=folders)
    return Place(name=name, root=Path(str(spec.origin)).parent)


def files_of(module: str, own: Place) -> ModuleFiles:
    """Files that an import of a module runs: its own, and its packages'.

    `own` counts wherever it lies; of others libraries and Plimsoll do not.
    """
    first, *parts = module.split(".")
    place = own if first == own.name else place_of(first)
    if place is None:
        return ModuleFiles(exists=first in sys.stdlib_module_names)
    if place is not own and is_library(place):
        return ModuleFiles(exists=True)
    bases = place.packages or (place.root / first,)
    steps = [
        (base, base.joinpath(*parts[:depth]))
        for base in bases
        for depth in range(len(parts) + 1)
    ]
    files = [
        (file.relative_to(base.parent).as_posix(), file)
        for base, path in steps
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py"))
        if os.path.lexists(file)
    ]
    ends = {base.joinpath(*parts) for base in bases}
    texts = {end.with_name(f"{end.name}.py") for end in ends}
    return ModuleFiles(
        exists=any(map(os.path.lexists, texts)) or any(end.is_dir() for end in ends),
        files=tuple(files),
        around=place,
    )


def is_library(place: Place) -> bool:
    """Whether a module belongs to Python, to Plimsoll or to what was installed."""
    if place.name.startswith(PLIMSOLL) or set(NOT_OURS) & set(place.root.parts):
        return True
    return place.root.is_relative_to(standard_library()) or (
        place.name in installed_in(place.root)
    )


@cache
def standard_library() -> Path:
    """Folder of Python's own modules."""
    return Path(sysconfig.get_path("stdlib")).resolve()


@cache
def installed_in(folder: Path) -> frozenset[str]:
    """Modules of the first level that were installed in a folder of any name.

    As by `pip install --target`, which leaves a list of files with each distribution.
    """
    return frozenset(
        file.parts[0].removesuffix(".py")
        for one in distributions(path=[str(folder)])
        for file in one.files or ()
    )


def files_around(own: Place) -> dict[str, Path]:
    """All Python files of a package, or in and below a script's folder."""
    return {
        file.relative_to(
            own.root if not own.packages else folder.parent
        ).as_posix(): file
        for folder in own.folders
        for file in python_files(folder)
    }


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, without what others installed there."""
    for place, subfolders, names in os.walk(folder):
        subfolders[:] = [n for n in subfolders if n[0] != "." and n not in NOT_OURS]
        yield from (Path(place) / name for name in names if name.endswith(".py"))


def imports_of(name: str, file: Path) -> Imports:
    """Imports of a file, whenever it does them.

    Raises:
        MissingSourceError: it cannot be read.
    """
    try:
        tree = ast.parse(content_of(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The import of the module raises it too, and says so to the user.
        return Imports(modules=(), members=(), is_open=False)
    reader = ImportReader(package=name.split("/")[:-1])
    try:
        reader.visit(tree)
    except RecursionError:  # an expression of a thousand terms, as generated code has
        reader.is_open = True
    return Imports(
        modules=tuple(dict.fromkeys(reader.modules)),
        members=tuple(dict.fromkeys(reader.members)),
        is_open=reader.is_open,
    )


class ImportReader(ast.NodeVisitor):
    """Collects the imports of one file, and whether it loads what none of them names.

    A mere reference is enough for the latter: what is done with it, no text tells.
    """

    def __init__(self, package: list[str]) -> None:
        """Begin with nothing; `package` is what dots lead up from."""
        self.package = package
        self.modules: list[str] = []
        self.members: list[str] = []
        self.is_open = False

    def visit_Import(self, node: ast.Import) -> None:
        """Note `import a.b`, and a loader among them, by whatever name."""
        for alias in node.names:
            self.modules.append(alias.name)
            self.is_open |= alias.name in LOADERS
            self.is_open |= alias.name in ENTRIES and bool(alias.asname)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note `from a import b`; dots lead up from the file's package."""
        up = self.package[: len(self.package) - node.level + 1] if node.level else []
        base = ".".join([*up, *([node.module] if node.module else [])])
        self.modules.append(base)
        self.is_open |= base in LOADERS
        for alias in node.names:
            self.members.append(f"{base}.{alias.name}")
            self.is_open |= is_open_part(base, alias.name)
            self.is_open |= alias.name in OPEN_NAMES and bool(alias.asname)

    def visit_Call(self, node: ast.Call) -> None:
        """Note `import_module("a.b")`, which is as good as an import statement."""
        match node:
            case ast.Call(
                func=function, args=[ast.Constant(value=str(module))], keywords=[]
            ) if last_name(function) in NAMES_A_MODULE and module[:1] != ".":
                self.modules.append(module)
            case _:
                self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note `sys.path`, `importlib.util` and what loads, of whatever object."""
        owner = last_name(node.value)
        self.is_open |= node.attr in OPEN_NAMES or is_open_part(owner, node.attr)
        if owner not in ENTRIES:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        """Note what loads, and a module that is passed on as a whole."""
        self.is_open |= node.id in (*OPEN_NAMES, *RUNS_TEXT, *ENTRIES)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Note texts that name a file of Python, or what loads one."""
        if isinstance(node.value, str):
            self.is_open |= node.value in OPEN_NAMES or node.value.endswith(".py")


def is_open_part(module: str, name: str) -> bool:
    """Whether a part of `sys` or `importlib` loads modules, or says where they lie."""
    match module:
        case "sys":
            return name in (*SEARCHED, "*")
        case "importlib":
            return name not in HARMLESS
        case _:
            return False


def last_name(expression: ast.expr) -> str:
    """Last name of a dotted expression; empty where it is none."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def content_of(file: Path) -> bytes:
    """Read a source file.

    Raises:
        MissingSourceError: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise MissingSourceError(
            f"source file {file}: {error.strerror}; remove it, or make it readable"
        ) from None
