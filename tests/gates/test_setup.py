"""First steps of a person: set-up, its messages, and the pinned versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_planner.engines import NEWEST_TORCH, dotted
from plimsoll_trainer.process import requirements
from tests.support.make import clean_environment, make
from tools import bootstrap
from tools.bootstrap import SetUpError

ROOT = Path(__file__).parents[2]
ONE_RELEASE = "name one release, as in make test-torch TORCH=2.11"


def a_ready_environment(folder: Path, extra: str, torch: str) -> None:
    """Write what an environment that is ready looks like to the set-up."""
    (folder / "bin").mkdir(exist_ok=True)
    for program in ("plimsoll", "uv"):
        (folder / "bin" / program).touch()
    (folder / "stamp").write_text(bootstrap.stamp_of(extra, torch))


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 10), (3, 14)])
def test_an_unsupported_python_is_one_line(
    version: tuple[int, int], tmp_path: Path
) -> None:
    """The line names the version found and what to do; nothing is set up."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys, collections\n"
        f'sys.version_info = {version!r} + (0, "final", 0)\n'
        'exec(sys.argv[1])\' "$2"\n'
    )
    python.chmod(0o755)
    done = make("env-local", f"PYTHON={python}", f"ENV={tmp_path}/env")
    assert done.returncode != 0
    first, *_ = done.stderr.splitlines()
    assert first == (
        f"Plimsoll needs Python 3.11 to 3.13, and {python} is "
        f"{version[0]}.{version[1]}: name another one with make PYTHON=python3.12"
    )
    assert not (tmp_path / "env").exists()


def test_a_ready_environment_is_left_alone(tmp_path: Path) -> None:
    """A second run installs nothing: it asks the stamp and is done."""
    a_ready_environment(tmp_path, "dev", "fetch")
    for target in ("env-dev", "env-local"):
        done = make(target, f"ENV={tmp_path}", f"PYTHON={sys.executable}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in tmp_path.iterdir()} == {"stamp", "bin"}


def test_dev_is_enough_for_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quickstart after a test sets nothing up; a test after a quickstart does."""
    assert not bootstrap.is_ready(tmp_path, "local", None)
    a_ready_environment(tmp_path, "dev", "fetch")
    assert bootstrap.is_ready(tmp_path, "local", None)
    assert bootstrap.is_ready(tmp_path, "dev", None)
    assert not bootstrap.is_ready(tmp_path, "dev", "existing")
    a_ready_environment(tmp_path, "local", "existing")
    assert bootstrap.is_ready(tmp_path, "local", "existing")
    assert not bootstrap.is_ready(tmp_path, "dev", None)
    changed = tmp_path / "pyproject.toml"
    changed.write_text("changed")
    monkeypatch.setattr(bootstrap, "INPUTS", (changed,))
    assert not bootstrap.is_ready(tmp_path, "local", "existing")


def test_what_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each missing prerequisite is one line with what to install."""
    bootstrap.require_prerequisites()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetUpError, match="apt-get install gcc"):
        bootstrap.require_prerequisites()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(SetUpError, match=r"apt-get install python3\.\d+-venv"):
        bootstrap.require_prerequisites()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SetUpError, match="Linux with glibc"):
        bootstrap.require_prerequisites()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise ImportError('no CUDA')", "says ImportError: no CUDA: name a Python"),
        ("__version__ = '2.10.1'", "has torch 2.10.1, and the oldest that works is 2"),
    ],
)
def test_an_unfit_torch_is_not_reused(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TORCH=existing needs a torch, and one that is new enough."""
    (tmp_path / "torch.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SetUpError, match=re.escape(message)):
        bootstrap.existing_torch(tmp_path / "env")


def test_the_oldest_torch_is_the_same_in_all_places() -> None:
    """Pages, commands, the check in every pod, and what is installed name one range."""
    for name, release in requirements.OLDEST.items():
        assert bootstrap.oldest(name) == dotted(release)
    torch, numpy = (bootstrap.oldest(name) for name in ("torch", "numpy"))
    newest = dotted(NEWEST_TORCH)
    for path, text in {
        "README.md": f"the torch ({torch} or newer)",
        "./README.md": f"Torch {torch} to {newest}, numpy {numpy} and transformers",
        "docs/cluster.md": f"with torch {torch}, numpy {numpy} and Python 3.11, or",
        "charts/plimsoll/README.md": f"torch {torch} (tested up to {newest}), numpy "
        f"{numpy} and Python 3.11, or newer",
        "docs/gpu.md": f"with torch {torch} and numpy {numpy} or newer",
        "CONTRIBUTING.md": f"on torch {torch}",
    }.items():
        assert text in (ROOT / path).read_text(), path
    for path in ("README.md", "Makefile"):
        named = re.findall(r"TORCH=(2[.0-9]+)", (ROOT / path).read_text())
        assert set(named) == {torch}, path


def test_a_torch_asked_for_by_number_has_pins_of_its_own(tmp_path: Path) -> None:
    """With it come the oldest numpy and transformers; all else stays pinned by hash."""
    words = bootstrap.pins_for(tmp_path, "2.11")
    loose, fixed = (Path(word).read_text() for word in words if "/" in word)
    assert fixed.splitlines() == [
        "torch==2.11.*",
        f"numpy=={bootstrap.oldest('numpy')}.*",
        f"transformers=={bootstrap.oldest('transformers')}.*",
    ]
    every = bootstrap.CONSTRAINTS.read_text()
    names = [set(re.findall(r"^([a-z0-9-]+)==", t, re.M)) for t in (every, loose)]
    assert {"torch", "numpy", "transformers", "triton"} <= names[0] - names[1]
    assert {"pytest", "hypothesis", "sqlalchemy", "ruff"} <= names[1]
    assert loose.count("--hash=") > len(names[1])
    assert bootstrap.pins_for(tmp_path, "fetch") == [
        "--constraints",
        str(bootstrap.CONSTRAINTS),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env-local", "TORCH=2.10"], "TORCH=2.10, and the oldest that works is 2.11"),
        (["test-torch", "TORCH=2.10"], "TORCH=2.10, and the oldest that works is 2.1"),
        (["test-torch"], f"TORCH='': {ONE_RELEASE}"),
        (["test-torch", "TORCH=existing"], f"TORCH='existing': {ONE_RELEASE}"),
        *(
            ([target, f"TORCH={value}"], f"TORCH={value!r}{advice}")
            for value in ("banana", "v2.11", "3.0", "2.banana", "2.11+cpu", "2.11 2.12")
            for target, advice in (
                ("env-local", " is neither one release, as TORCH=2.11, nor TORCH=exis"),
                ("test-torch", f": {ONE_RELEASE}"),
            )
        ),
    ],
)
def test_a_torch_that_cannot_be_had_is_one_line(
    words: list[str], message: str, tmp_path: Path
) -> None:
    """Before anything is locked, fetched or removed."""
    before = set(ROOT.iterdir())
    for place in ([], [f"ENV={tmp_path}/env"]):
        done = make(*words, *place, f"PYTHON={sys.executable}")
        assert done.returncode != 0
        line, *rest = done.stderr.splitlines()
        assert message in line
        assert all(text.startswith("make") for text in rest)
        assert not done.stdout
    assert list(tmp_path.iterdir()) == []
    assert set(ROOT.iterdir()) == before


def test_a_release_is_set_up_without_advice_to_reuse_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TORCH=existing reuses any release; it is named where the newest is fetched."""
    monkeypatch.setattr(bootstrap, "install", lambda env, *_: env.mkdir())
    for torch, is_advised in ((bootstrap.oldest("torch"), False), (None, True)):
        bootstrap.set_up(tmp_path / str(torch), "dev", torch)
        assert ("TORCH=existing" in capsys.readouterr().out) is is_advised


def test_variables_of_the_caller_do_not_reach_make_in_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that the Makefile reads, nor those of an outer make."""
    a_ready_environment(tmp_path, "dev", "fetch")
    for name in (
        *("TORCH", "DEVICE", "PROVE", "GPU", "PYTHON", "ENV", "BIN", "KILLS"),
        *("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "GNUMAKEFLAGS"),
    ):
        monkeypatch.setenv(name, "-e" if "FLAGS" in name else "banana")
        assert name not in clean_environment()
    done = make("env-dev", f"ENV={tmp_path}", f"PYTHON={sys.executable}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert clean_environment(TORCH="2.11")["TORCH"] == "2.11"


def test_without_uv_an_environment_is_not_ready(tmp_path: Path) -> None:
    """The wheel is installed by it."""
    a_ready_environment(tmp_path, "dev", "fetch")
    (tmp_path / "bin" / "uv").unlink()
    assert not bootstrap.is_ready(tmp_path, "dev", None)


def test_make_works_in_odd_environments(tmp_path: Path) -> None:
    """Or says in one line what to do: no Python named, a safe path, another folder."""
    dry = make("--dry-run", "lint", "PYTHON=")
    assert "\npython3 tools/bootstrap.py .venv dev" in dry.stdout
    elsewhere = make(f"--file={ROOT}/Makefile", "lint", cwd=tmp_path)
    assert elsewhere.returncode == 2
    (line,) = elsewhere.stderr.splitlines()
    assert f"this is not the folder of Plimsoll: make -C {ROOT}/ lint" in line
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "safe path: $PYTHONSAFEPATH"\n')
    python.chmod(0o755)
    words = ("-o", "env-dev", "lint", f"BIN={tmp_path}")
    assert make(*words, PYTHONSAFEPATH="1").stdout == "safe path: \n"


def test_every_target_of_help_is_made_whatever_files_there_are() -> None:
    """A file or folder of its name would count as made."""
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*?[^\\])\n", text, re.MULTILINE | re.DOTALL)
    targets = set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))
    assert targets == set(phony.replace("\\\n", "").split())
    assert ".venv.lock " in make("--dry-run", "clean").stdout


def test_a_torch_is_not_taken_from_what_is_about_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment made anew cannot lend its own torch to itself."""
    (tmp_path / "torch").mkdir()
    content = "print('hello')\n__version__ = '2.15.0'"
    (tmp_path / "torch" / "__init__.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert bootstrap.existing_torch(tmp_path / "other") == tmp_path
    with pytest.raises(SetUpError, match=r"is in \S+ itself"):
        bootstrap.existing_torch(tmp_path)


def test_a_wrong_wish_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch that is not there is found out before anything is removed."""
    env = tmp_path / "env"
    env.mkdir()
    a_ready_environment(env, "dev", "fetch")
    monkeypatch.setattr(bootstrap, "TORCH_FOUND", "raise ImportError")
    with pytest.raises(SetUpError, match="TORCH=existing, but"):
        bootstrap.set_up(env, "dev", "existing")
    assert bootstrap.is_ready(env, "dev", None)


def test_half_an_environment_is_not_ready(tmp_path: Path) -> None:
    """Remains of a removal do not pass for an environment."""
    a_ready_environment(tmp_path, "dev", "fetch")
    (tmp_path / "bin" / "plimsoll").unlink()
    assert not bootstrap.is_ready(tmp_path, "dev", None)


def test_every_version_is_pinned_by_hash_and_no_address() -> None:
    """Installs are reproducible, from any index or mirror."""
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    pins = re.findall(r"^([a-z0-9-]+)==\S+.*\\\n    --hash=sha256:", text, re.MULTILINE)
    lines = re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE)
    assert len(pins) == len(lines) > 50


def test_an_unrecorded_line_is_an_error() -> None:
    """A constraints file of another make is not half understood."""
    with pytest.raises(SetUpError, match="make constraints"):
        bootstrap.recorded(r"^no such line (\d)$")


def test_no_file_of_the_tree_names_an_address_of_an_index() -> None:
    """Nothing that is committed says where packages come from."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    hosts = ("pypi." + "org", "files.python" + "hosted", "proxy.go" + "lang")
    for name in listed.stdout.splitlines():
        text = (ROOT / name).read_text(errors="ignore")
        assert not [host for host in hosts if host in text], name
