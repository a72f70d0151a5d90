"""What the build cache and the samples of verified tables may take, and what goes first."""

import hashlib
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from hwbench import room
from hwbench.data.checking import check_listing
from hwbench.data.listings import open_listing
from hwbench.errors import InvalidValue
from hwbench.measure.cache import ArtifactCache
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Artifact, DelegationReport, Workload
from hwbench.testing.decoders import write_moving
from hwbench.workspace import Workspace

KIB = 1024
WORKLOADS = [Workload.parse(f"x3d_i24_m54_o24_k3x3x3_swish@1x24x4x{size}x{size}/int8/auto") for size in range(4, 14)]


def build(root, workload, size=10 * KIB, days=0):
    """A built file, last used so many days ago."""
    cache = ArtifactCache(root, "executorch")
    root.mkdir(exist_ok=True)
    path = root / f"{cache.key(workload)}.pte"
    path.write_bytes(bytes(size))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    cache.save(Artifact(path, digest, workload, "executorch", cache.version, DelegationReport(1, {})))
    for file in (path, path.with_suffix(".json")):
        os.utime(file, (time.time() - days * 86400,) * 2)


def present(root):
    cache = ArtifactCache(root, "executorch")
    return [at for at, workload in enumerate(WORKLOADS) if (root / f"{cache.key(workload)}.json").exists()]


@contextmanager
def process(code, *arguments):
    """Another process: runs some code, says so, and lives until the end of the block."""
    body = f"import sys\nfrom pathlib import Path\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", body, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        yield child
        child.stdin.close()
        assert child.wait() == 0


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A cache that may hold 50 KiB, and that this process does not use."""
    monkeypatch.setenv(room.LIMIT_VARIABLE, "50KiB")
    yield tmp_path / "cache"
    forget(tmp_path / "cache")


def forget(root):
    """This process does not use a cache any more."""
    user = room._using.pop((os.getpid(), root.absolute()), None)
    if user is not None:
        os.close(user.descriptor)


def test_19_24_what_was_used_least_recently_goes_when_the_cache_grows(root):
    for at, workload in enumerate(WORKLOADS[:6]):
        build(root, workload, days=10 - at)
    assert ArtifactCache(root, "executorch").load(WORKLOADS[0]) is not None
    forget(root)
    # keys of before that nobody asks for, a runner, and what a build left behind
    (root / "runner-0123").write_bytes(bytes(20 * KIB))
    with ArtifactCache(root, "executorch").building():
        pass
    assert present(root) == [0, 3, 4, 5]
    assert (
        sorted(p.suffix for p in root.glob("*.*") if p.is_file() and p.suffix != ".lock")
        == [".json"] * 4 + [".pte"] * 4
    )
    assert (root / "runner-0123").exists()


def test_19_24_what_a_running_process_used_stays_whatever_the_clock_says(root):
    for at, workload in enumerate(WORKLOADS[:8]):
        build(root, workload, days=10 - at)
    forget(root)
    code = """
import time
from hwbench.measure.cache import ArtifactCache
from hwbench.specs import Workload
real = time.time_ns
used = ArtifactCache(Path(sys.argv[1]), "executorch")
assert used.load(Workload.parse(sys.argv[2]))
time.time_ns = lambda: real() - 30 * 86400 * 10**9
assert used.load(Workload.parse(sys.argv[3]))
"""
    with process(code, root, WORKLOADS[0].key, WORKLOADS[1].key):
        assert room.trim_builds(root).kept_bytes == 0
        assert present(root) == [0, 1, 6, 7]
        freed = room.clean_cache(root)
        assert present(root) == [0, 1]
        assert freed.removed_files == 4
        assert freed.kept_bytes > 20 * KIB
    room.clean_cache(root)
    assert present(root) == []


def test_19_24_what_a_check_of_data_finds_out_stays_while_it_runs(tmp_path):
    workspace = Workspace.create(tmp_path / "bench")
    for number in range(3):
        write_moving(tmp_path / "clips" / "run" / f"{number}.mp4", 4 + number)
    listing = open_listing(workspace, str(tmp_path / "clips"))

    def check(progress):
        return check_listing(workspace, listing, jobs=0, time_limit_s=60, progress=progress)

    begun = []
    check(lambda stage, done, total: done or room.clean_cache(workspace.cache))
    check(lambda stage, done, total: begun.append((stage, done)))
    assert begun[0] == ("probe", 3)


def test_a_trained_supernet_stays_where_nobody_uses_the_cache(root):
    """Hours of training, without which its study scores no further network."""
    for folder in ("supernets/0123", "flow/4567"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_bytes(bytes(KIB))
    freed = room.clean_cache(root)
    assert (freed.removed_bytes, freed.kept_bytes) == (KIB, 0)
    assert sorted(path.name for path in root.iterdir()) == [room.USERS, "supernets"]
    assert (root / "supernets" / "0123" / "file").is_file()


def test_19_24_a_process_that_was_killed_holds_nothing(root):
    build(root, WORKLOADS[0])
    forget(root)
    code = "from hwbench.room import use\nuse(Path(sys.argv[1]))"
    with process(code, root) as child:
        (root / "runner-0123").write_bytes(bytes(KIB))
        assert room.clean_cache(root).kept_bytes == KIB
        child.kill()
        child.wait()
        assert room.clean_cache(root).kept_bytes == 0
        child.stdin.close()
        child.wait = lambda: 0
    assert [path.name for path in root.iterdir()] == [room.USERS]


def test_19_24_a_file_that_is_used_while_others_go_stays(root, monkeypatch):
    for workload in WORKLOADS[:8]:
        build(root, workload, days=3)
    entries = [room._entry([root / f"{ArtifactCache(root, 'executorch').key(w)}.json"]) for w in WORKLOADS[:2]]
    began = time.time_ns()
    os.utime(entries[0].paths[0], ns=(began, began))
    freed = room.Room()
    assert not room._remove(entries[0], freed, lambda entry, used_ns: used_ns >= began)
    assert room._remove(entries[1], freed, lambda entry, used_ns: used_ns >= began)
    assert present(root)[0] == 0
    assert len(present(root)) == 7


@pytest.mark.parametrize("text", ["many", "10", "-1GiB", "1e999GiB"])
def test_19_24_a_limit_that_is_no_size_is_told_before_anything_is_built(root, monkeypatch, text):
    monkeypatch.setenv(room.LIMIT_VARIABLE, text)
    expected = r'HWBENCH_CACHE_LIMIT: expected a size with a unit .* such as "10GiB"'
    with pytest.raises(InvalidValue, match=expected), ArtifactCache(root, "executorch").building():
        pytest.fail("built")


def test_19_24_the_limit_is_ten_gib_and_can_be_taken_away(monkeypatch):
    monkeypatch.delenv(room.LIMIT_VARIABLE, raising=False)
    assert room.limit_bytes() == 10 * 1024**3
    monkeypatch.setenv(room.LIMIT_VARIABLE, "1.5 TiB")
    assert room.limit_bytes() == 1.5 * 1024**4
    monkeypatch.setenv(room.LIMIT_VARIABLE, "none")
    assert room.limit_bytes() == float("inf")


def test_19_24_samples_of_verified_tables_go_oldest_first_and_open_ones_stay(tmp_path, monkeypatch):
    for number in range(4):
        MeasurementStore(tmp_path / f"{number}.sqlite").close()
        for path in tmp_path.glob(f"*{number}.sqlite*"):
            os.utime(path, (time.time() - (10 - number) * 86400,) * 2)
    size = (tmp_path / "0.sqlite").stat().st_size
    monkeypatch.setattr(room, "VERIFIED_BYTES", int(2.5 * size))
    code = "from hwbench.measure.store import MeasurementStore\nstore = MeasurementStore(Path(sys.argv[1]))"
    with process(code, tmp_path / "0.sqlite"):
        os.utime(tmp_path / "0.sqlite", (time.time() - 10 * 86400,) * 2)
        room.trim_verified(tmp_path)
        assert sorted(path.name for path in tmp_path.glob("[0-9]*")) == ["0.sqlite", "3.sqlite"]
        assert room.clean_verified(tmp_path).kept_bytes >= size
        assert sorted(path.name for path in tmp_path.glob("[0-9]*")) == ["0.sqlite"]
    assert room.clean_verified(tmp_path).removed_files == 2
    assert list(tmp_path.iterdir()) == []


def test_19_24_a_folder_that_is_not_there_has_nothing_to_remove(tmp_path):
    for remove in (room.trim_builds, room.clean_cache, room.trim_verified, room.clean_verified):
        assert remove(tmp_path / "nowhere") == room.Room()
    assert ArtifactCache(tmp_path / "nowhere", "executorch").load(WORKLOADS[0]) is None
    assert list(tmp_path.iterdir()) == []
