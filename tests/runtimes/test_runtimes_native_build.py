import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hwbench.errors import MissingDependency, WorkspaceError
from hwbench.runtimes.capabilities import NATIVE, PYTHON
from hwbench.runtimes.native import build
from hwbench.runtimes.native.build import Wheel, build_runner, find_compiler
from hwbench.runtimes.runners import choose_runner

# A compiler that takes no time: it writes its arguments where it is told to.
FAKE = """#!/bin/sh
echo "$@" >> "$0.log"
if [ "$1" = --version ]; then echo "fake 1.0"; exit 0; fi
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then out="$2"; fi; shift; done
sleep 0.2
echo binary > "$out"
"""


@pytest.fixture
def compiler(tmp_path):
    path = tmp_path / "bin" / "c++"
    path.parent.mkdir()
    path.write_text(FAKE)
    path.chmod(0o755)
    return path


def builds(compiler):
    log = Path(f"{compiler}.log")
    return sum("--version" not in line for line in log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_built_runner_starts(native):
    done = subprocess.run([*native.command, "--help"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--help" in done.stderr


def test_it_is_built_once_and_says_so(compiler, tmp_path):
    said = []
    first = build_runner(tmp_path / "cache", compiler=[str(compiler)], report=said.append)
    assert first.read_text() == "binary\n"
    assert build_runner(tmp_path / "cache", compiler=[str(compiler)], report=said.append) == first
    assert builds(compiler) == 1
    assert len(said) == 1
    assert str(compiler) in said[0]
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == sorted([first.name, "runner.lock"])


def test_two_at_once_build_once(compiler, tmp_path):
    code = """
    import sys
    from pathlib import Path
    from hwbench.runtimes.native.build import build_runner
    print(build_runner(Path(sys.argv[1]), compiler=[sys.argv[2]]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "cache"), str(compiler)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: subprocess.check_output(command, text=True, cwd=os.getcwd()), range(3)))
    assert len(set(found)) == 1
    assert builds(compiler) == 1


def test_what_decides_about_the_binary_is_in_its_name(compiler, tmp_path, monkeypatch):
    def name(**options):
        return build_runner(tmp_path / "cache", **{"compiler": [str(compiler)], **options}).name

    names = {name()}
    names.add(name(compiler=[str(compiler), "-g"]))
    installed = Wheel.installed()
    names.add(name(wheel=Wheel(installed.root, "9.9.9")))
    names.add(name(wheel=Wheel(tmp_path, installed.version)))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O3"))
    names.add(name())
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    for file in ("runner.cpp", "model.h"):
        (tmp_path / file).write_text("int main() {}\n")
        names.add(name())
    compiler.write_text(FAKE.replace("fake 1.0", "fake 1.1"))
    names.add(name())
    assert len(names) == 8


def test_no_compiler(no_compiler, tmp_path):
    with pytest.raises(MissingDependency, match=r"apt-get install g\+\+"):
        build_runner(tmp_path / "cache")
    said = []
    runner = choose_runner("executorch", tmp_path / "cache", said.append)
    assert runner.kind == PYTHON
    assert len(said) == 1
    assert "apt-get install g++" in said[0]


def test_the_compiler_of_the_environment_comes_first(no_compiler, compiler, monkeypatch):
    monkeypatch.setenv("CXX", f"{compiler} -g")
    assert find_compiler() == (str(compiler), "-g")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("PATH", str(compiler.parent))
    assert find_compiler() == (str(compiler),)


@pytest.mark.parametrize(
    "said",
    [
        "runner.cpp:3: error: concepts are not supported",
        "g++: error: unrecognized command line option -std=c++20",
    ],
)
def test_a_compiler_that_cannot_do_it(compiler, tmp_path, said):
    compiler.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    with pytest.raises(MissingDependency, match=rf"C\+\+20 is needed.*{re.escape(said)}.*a newer compiler"):
        build_runner(tmp_path / "cache", compiler=[str(compiler)])
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["runner.lock"]


def test_what_the_linker_says_is_not_the_standards_fault(compiler, tmp_path):
    compiler.write_text("#!/bin/sh\necho '/usr/bin/ld: error: cannot find -lgomp' >&2\nexit 1\n")
    with pytest.raises(MissingDependency, match=r"the C\+\+ runner: .*cannot find -lgomp; install another compiler"):
        build_runner(tmp_path / "cache", compiler=[str(compiler)])


def test_a_wheel_in_a_folder_with_a_comma_is_linked(tmp_path):
    wheel, folder, source = Wheel.installed(), tmp_path / "work, old", tmp_path / "empty.cpp"
    folder.mkdir()
    (folder / "executorch").symlink_to(wheel.root)
    source.write_text("int main() {}\n")
    command = Wheel(folder / "executorch", wheel.version).command(find_compiler(), tmp_path / "empty")
    subprocess.run([str(source) if word.endswith("runner.cpp") else word for word in command], check=True)
    assert subprocess.run([str(tmp_path / "empty")]).returncode == 0


def test_a_disk_without_room_is_not_the_compilers_fault(compiler, tmp_path):
    full = 'if [ "$1" != --version ]; then echo "as: write error: No space left on device" >&2; exit 1; fi'
    compiler.write_text(FAKE.replace("sleep 0.2", full).replace('echo binary > "$out"', ""))
    with pytest.raises(WorkspaceError, match="no space is left on the disk"):
        build_runner(tmp_path / "cache", compiler=[str(compiler)])


def test_no_wheel(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install"):
        Wheel.installed()


def test_a_cache_that_cannot_be_made(compiler, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(WorkspaceError):
        build_runner(tmp_path / "cache", compiler=[str(compiler)])


def test_other_runtimes_are_run_by_python(tmp_path):
    assert choose_runner("torch", tmp_path / "cache").kind == PYTHON
    assert not (tmp_path / "cache").exists()


def test_labels_tell_runners_apart(native, tmp_path):
    assert native.label == f"{NATIVE}/4"
    assert choose_runner("torch", tmp_path).label == f"{PYTHON}/4"
