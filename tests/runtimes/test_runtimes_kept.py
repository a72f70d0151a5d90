"""What was built or fetched once is taken again as it was made, from a folder that nobody else can write."""

import hashlib
import os
import platform
import re
import sys
from pathlib import Path

import pytest

from hwbench.errors import InvalidFile, WorkspaceError
from hwbench.measure.cache import ArtifactCache
from hwbench.ownership import SAFE_DIRECTORY
from hwbench.runtimes.native import kept, wheels
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.native.wheels import fetch_wheel, published_digests
from hwbench.runtimes.runner_bundle import python_kit, sources_kit
from hwbench.specs import Artifact, DelegationReport, Workload

# A compiler that takes no time: it writes the letters of its own name where it is told to.
FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "fake 1.0"; exit 0; fi
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then out="$2"; fi; shift; done
echo built >> "$0.log"; echo binary > "$out"; chmod 777 "$out"
"""
WORKLOAD = Workload.parse("x3d_i8_m16_o8_k1x3x3_relu@1x8x4x16x16/fp32/auto")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def compiler(tmp_path):
    path = tmp_path / "bin" / "c++"
    path.parent.mkdir()
    path.write_text(FAKE)
    path.chmod(0o755)
    return path


def builds(compiler):
    return len(Path(f"{compiler}.log").read_text().splitlines())


def damage(path, how):
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-1], "empty": b"", "other": data[:-1] + bytes([data[-1] ^ 1])}[how])


@pytest.mark.parametrize("how", ["cut", "empty", "other"])
def test_19_04_a_runner_that_is_not_the_one_that_was_built_is_built_again(compiler, tmp_path, how):
    cache = tmp_path / "cache"
    binary = build_runner(cache, compiler=[str(compiler)])
    damage(binary, how)
    again = build_runner(cache, compiler=[str(compiler)])
    assert (again.read_text(), builds(compiler)) == ("binary\n", 2)
    assert build_runner(cache, compiler=[str(compiler)]) == again
    assert builds(compiler) == 2
    assert sorted(path.name for path in cache.iterdir()) == sorted([again.name, "runner.lock"])


def test_19_04_a_program_under_the_old_name_is_not_believed(compiler, tmp_path):
    """Nor one that somebody put there under the name that is looked for."""
    cache = tmp_path / "cache"
    name = build_runner(cache, compiler=[str(compiler)]).name
    for planted in (name.rpartition("-")[0], name.rpartition("-")[0] + "-" + "0" * 32):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / planted).write_text("#!/bin/sh\ntouch evil\n")
    binary = build_runner(tmp_path / "other", compiler=[str(compiler)])
    assert (binary.name, binary.read_text()) == (name, "binary\n")
    assert not (tmp_path / "other" / planted).exists()


def test_19_04_a_runner_that_others_could_write_is_built_again(compiler, tmp_path):
    binary = build_runner(tmp_path / "cache", compiler=[str(compiler)])
    assert binary.stat().st_mode & 0o777 == 0o755  # the compiler's umask does not count
    binary.chmod(0o777)
    again = build_runner(tmp_path / "cache", compiler=[str(compiler)])
    assert (again.stat().st_mode & 0o777, builds(compiler)) == (0o755, 2)


def test_19_04_folders_of_others_are_refused(compiler, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    (cache / "wheels").mkdir(parents=True)
    makers = (
        lambda: build_runner(cache, compiler=[str(compiler)]),
        lambda: python_kit(sys.executable, cache),
        lambda: sources_kit(platform.machine(), cache),
        lambda: ArtifactCache(cache, "executorch").load(WORKLOAD),
        lambda: ArtifactCache(cache, "executorch").building().__enter__(),
    )
    cache.chmod(0o777)
    for make in makers:
        with pytest.raises(WorkspaceError, match=f"cache can be written by everybody.*export {SAFE_DIRECTORY}="):
            make()
    cache.chmod(0o755)
    (cache / "wheels").chmod(0o1777)
    with pytest.raises(WorkspaceError, match="wheels can be written by everybody"):
        fetch_wheel("aarch64", cache, version="1.5.1")
    cache.chmod(0o777)
    monkeypatch.setenv(SAFE_DIRECTORY, str(cache))
    assert build_runner(cache, compiler=[str(compiler)]).is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="run as root: a folder is given to another user")
def test_19_04_a_cache_of_another_user_is_refused(compiler, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 54321, -1)
    with pytest.raises(WorkspaceError, match="cache belongs to user 54321"):
        build_runner(cache, compiler=[str(compiler)])


@pytest.mark.parametrize("how", ["cut", "empty", "other"])
def test_19_04_kits(tmp_path, how):
    makers = [lambda: python_kit(sys.executable, tmp_path)]
    if how == "cut":  # packing takes seconds
        makers.append(lambda: sources_kit(platform.machine(), tmp_path))
    for make in makers:
        (archive,) = make().files
        data = archive.read_bytes()
        damage(archive, how)
        (again,) = make().files
        assert (again, again.read_bytes()) == (archive, data)


def unpacked(cache):
    """A wheel as it lies there after it was fetched."""
    made = cache / "wheels" / "made"
    for name in ("include/executorch/x.h", "lib/libexecutorch.so"):
        path = made / "executorch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return kept.keep(made, cache / "wheels", "executorch-1.5.1-aarch64")


def test_19_04_an_unpacked_wheel_is_whole_or_not_taken(tmp_path, monkeypatch):
    folder = unpacked(tmp_path)
    assert fetch_wheel("aarch64", tmp_path, version="1.5.1").root == folder / "executorch"
    monkeypatch.setattr(wheels, "_download", lambda *_: pytest.fail("fetched again"))
    fetch_wheel("aarch64", tmp_path, version="1.5.1")
    fetched = []
    monkeypatch.setattr(wheels, "_download", lambda *_: fetched.append(1) or (_ for _ in ()).throw(InterruptedError))
    (folder / "executorch" / "include" / "executorch" / "x.h").write_text("#include </evil.h>   ")
    with pytest.raises(InterruptedError):
        fetch_wheel("aarch64", tmp_path, version="1.5.1")
    assert fetched == [1]
    assert not folder.exists()


@pytest.mark.parametrize("change", ["new file", "file gone", "new name", "same length"])
def test_19_04_the_digest_of_a_folder_sees(tmp_path, change):
    folder = unpacked(tmp_path)
    before = kept.content_digest(folder)
    file = folder / "executorch" / "lib" / "libexecutorch.so"
    if change == "new file":
        file.with_name("libother.so").write_text("")
    elif change == "file gone":
        file.unlink()
    elif change == "new name":
        file.rename(file.with_name("libother.so"))
    else:
        file.write_text(file.read_text().upper())
    assert kept.content_digest(folder) != before


def test_19_04_a_wheel_has_the_published_digest(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    name = next(name for name in published_digests() if name.endswith("_aarch64.whl"))
    (folder / name).write_bytes(b"another wheel")
    digest = hashlib.sha256(b"another wheel").hexdigest()
    expected = published_digests()[name]
    with pytest.raises(
        InvalidFile, match=f"expected sha256 {expected}, this one has {digest}; remove it from .*sha256sum"
    ):
        fetch_wheel("aarch64", tmp_path, version="1.5.1")
    (folder / f"{name}.sha256").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(InvalidFile, match=f"expected sha256 {'0' * 64}"):
        fetch_wheel("aarch64", tmp_path, version="1.5.1")
    (folder / f"{name}.sha256").write_text(f"{digest}  {name}\n")
    with pytest.raises(InvalidFile, match="not a zip file"):
        fetch_wheel("aarch64", tmp_path, version="1.5.1")


def test_19_04_a_version_without_a_known_digest_is_told(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "executorch-1.5.9-cp311-cp311-manylinux_2_28_aarch64.whl").write_bytes(b"another wheel")
    said = []
    with pytest.raises(InvalidFile, match="not a zip file"):
        fetch_wheel("aarch64", tmp_path, version="1.5.9", report=said.append)
    assert "no digest of executorch 1.5.9 is known here" in said[0]


def test_19_04_the_pinned_version_has_its_digests():
    (version,) = re.findall(r"^executorch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    names = [name for name in published_digests() if name.startswith(f"executorch-{version}-")]
    assert {(name.split("-")[2], name.split("_28_")[1]) for name in names} >= {
        (f"cp3{minor}", f"{machine}.whl") for minor in (11, 12, 13) for machine in ("aarch64", "x86_64")
    }
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in published_digests().values())


def test_19_04_entries_of_the_build_cache(tmp_path):
    cache = ArtifactCache(tmp_path, "executorch")
    path = tmp_path / f"{cache.key(WORKLOAD)}.pte"

    def built():
        path.write_bytes(b"program")
        path.chmod(0o666)
        digest = hashlib.sha256(b"program").hexdigest()
        cache.save(Artifact(path, digest, WORKLOAD, "executorch", cache.version, DelegationReport(1)))

    built()
    assert cache.load(WORKLOAD) is not None
    assert {file.stat().st_mode & 0o022 for file in tmp_path.iterdir()} == {0}
    for file in [file for file in tmp_path.iterdir() if file.suffix in (".json", ".pte")]:
        file.chmod(0o666)
        assert cache.load(WORKLOAD) is None
        built()
        assert cache.load(WORKLOAD) is not None
    damage(path, "other")
    assert cache.load(WORKLOAD) is None
