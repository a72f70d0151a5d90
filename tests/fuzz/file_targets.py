"""Every kind of text file that hwbench reads, each by what reads it; the message of an error names the file."""

import io
import json
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import optuna
import torch

from hwbench.api.bench_model import _manifest
from hwbench.api.bench_sustained import course_to_json
from hwbench.data import ClipSpec, ImuSpec, read_imu
from hwbench.data.flow import NOTE, FlowFolder
from hwbench.data.readers import get as get_reader
from hwbench.data.videos import read_splits
from hwbench.deploy.manifest import DeployedModel
from hwbench.devices import lease, load_device, virtual
from hwbench.devices.journal import Change, Journal
from hwbench.devices.known_hosts import HostKey, known, record
from hwbench.errors import UsageError
from hwbench.latency import LatencyTable
from hwbench.measure.cache import ArtifactCache, artifact_to_json
from hwbench.measure.sustained_log import courses, read_course
from hwbench.reports.exported import read_exported
from hwbench.reports.result import read_result
from hwbench.reports.study import _searched
from hwbench.spaces import load_space, resolve
from hwbench.spaces.cards import load_card
from hwbench.studies.journal import open_study
from hwbench.studies.settings import Settings
from hwbench.studies.stored_settings import JOURNAL
from hwbench.testing import fuzz
from hwbench.testing.datasets import COPIES
from hwbench.testing.models import artifact
from hwbench.training.checkpoint import Checkpoint, _digest, _to_meta, load_checkpoint
from hwbench.training.recipe import Recipe
from hwbench.workspace import Workspace

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SMALL = GOLDEN / "pte" / "small-1.5.1.pte"
TABLES = sorted((ROOT / "experiments").rglob("*.csv"))
KEY = HostKey("board", "ssh-ed25519", b"0123456789")
HOSTS = f"{KEY.line}\n@revoked * {KEY.line}\n|1|YQ==|YQ== a b\n!x,*.y,[a]:22 k AAAA\n"
VIDEOS = ["a.mp4 0\nb.mp4 1\nc.mp4 0\nd.mp4 1\n", "a.mp4\tcat\nb.mp4 cat\n# x\n"]
COURSE = (
    '{"kind": "begin", "target": "s9/executorch-1.5.1/t1", "model": "m.pte", "sha256": "ab", "precision": "int8", '
    '"started_at": "2026-11-25T02:00:00+00:00", "cool_s": 0.03, "cool_low_s": 0.029, "cool_high_s": 0.031}\n'
    '{"kind": "window", "at_s": 2.5, "seconds": 5.0, "latency_s": 0.04, "executions": 120, '
    '"temperature_celsius": 50.5, "clock_hz": 2e9, "part": 0, "cpu_s": 4.9, '
    '"energy": {"packages": [[5, 9]], "current_ua": null, "voltage_uv": null, '
    '"charging": false}}\n{"kind": "end", "how": "settled"}\n'
)
# As the journal of the golden study has them.
SETTINGS = Settings("x3d-tiny", "6e40444ce4b531f8", "local/executorch-1.5.1/t1", "int8", 4.2, 8, sampler="tpe")


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def naming(path: Path, read: Callable[[], object]) -> None:
    """Reads; an error is of exit status 2 and names the file."""
    try:
        read()
    except UsageError as error:
        check_message(error, path)
        raise


def check_message(error: UsageError, path: Path) -> None:
    text = str(error)
    text.encode()
    assert error.exit_status == 2
    assert str(path) in text, f"names no {path.name}: {text[:300]}"
    assert len(text) < 100_000, f"a message of {len(text)} characters"


def recorded(paths: Sequence[Path]) -> list[str]:
    assert paths
    return [path.read_text(encoding="utf-8") for path in paths]


def short_tables() -> list[str]:
    """The first line, the columns and some rows of every table: all kinds of rows, and changes that hit them."""
    heads = []
    for text in recorded(TABLES):
        if not text.startswith("# hwbench"):
            continue
        lines = text.splitlines(keepends=True)
        heads.append("".join([*lines[:2], *lines[2 :: max(len(lines) // 8, 1)]]))
    return heads


def devices() -> list[str]:
    """The files of the repository, and one with every key."""
    every = """schema = 1
name = "s9"
description = "every key"
transport = "ssh"
threads = 2
cpus = [7, 6]
model = ["SM-G960F", "Pixel*"]
conditions = "controlled"
emulated = true
work_dir = "~/hwbench"
runner = "./runner"
fingerprint = "0123456789abcdef"
unit = "0123456789abcdef"

[ssh]
host = "pi5.local"
user = "pi"
port = 22
agent = false
"""
    shipped = [
        text.replace('name = "local"', 'name = "s9"') for text in recorded(sorted(ROOT.glob("profiles/*/*.toml")))
    ]
    return [*shipped, every]


def spaces() -> list[str]:
    found = sorted(ROOT.glob("search_spaces/*.toml"))
    return [text.replace(f'"{path.stem}"', '"x3d-mobile"') for path, text in zip(found, recorded(found), strict=True)]


def cards() -> list[str]:
    found = sorted(ROOT.glob("zoo/*/*.toml"))
    return [text.replace(f'"{path.parent.name}"', '"x3d-s"') for path, text in zip(found, recorded(found), strict=True)]


def checkpoint_meta(workspace: Workspace) -> str:
    network = resolve(workspace, "zoo:x3d-xs")
    return json.dumps(_to_meta(Checkpoint(network, ("a", "b"), Recipe(), ClipSpec(4, 12), {"top1": 0.5}, "synthetic")))


def data_sets(folder: Path) -> list[tuple[str, str, Path, Path, str]]:
    """The text files of the small copies of data sets: name, reader, data path, file, and what stands in it."""
    files = []
    for reader, copy in COPIES.items():
        if copy.needs:
            continue
        (folder / reader).mkdir(parents=True)
        root = copy.make(folder / reader)
        read_splits(root, reader=get_reader(reader))  # makes indices of archives
        for path in sorted((folder / reader).rglob("*")):
            if path.suffix in (".txt", ".csv", ".json", ".pbtxt"):
                name = path.relative_to(folder).as_posix()
                files.append((name, reader, root, path, path.read_text(encoding="utf-8")))
    return files


def targets(folder: Path) -> list[fuzz.FuzzTarget]:
    """All of them.

    Args:
        folder: Where the files are written.
    """
    workspace = Workspace.create(folder / "work")
    root = workspace.root
    cache = ArtifactCache(folder / "cache", "executorch")
    small = artifact(SMALL)
    description = cache._description(small.workload)
    model = written(folder / "bench" / "model.pte", "not read")
    change = Change("adb:1", "0123", "boost", {"a": "1"}, {"a": "0"}, "2026-01-31", 7)
    holder = {"identity": "adb:1", "pid": 1, "machine": "here", "command": "hwbench", "since": "now"}

    def device(text: str) -> None:
        path = written(root / "profiles" / "s9" / "device.toml", text)

        def read() -> None:
            found = load_device(workspace, "s9")
            json.dumps(found.options)
            repr(found.address)

        naming(path, read)

    def space(text: str) -> None:
        path = written(root / "search_spaces" / "x3d-mobile.toml", text)
        naming(path, lambda: load_space(workspace, "x3d-mobile"))

    def card(text: str) -> None:
        path = written(root / "zoo" / "x3d-s" / "model.toml", text)
        naming(path, lambda: load_card(workspace, "x3d-s").network(8))

    def table(text: str) -> None:
        path = written(folder / "table.csv", text)
        naming(path, lambda: again(path))

    def again(path: Path) -> None:
        """What reads is written as it is read."""
        first = LatencyTable.read(path)
        path.write_bytes(first.text.encode())
        second = LatencyTable.read(path)
        assert second.text == first.text
        assert [row.reason for row in second] == [row.reason for row in LatencyTable.read(path)]

    def manifest(text: str) -> None:
        path = written(folder / "exported" / "manifest.json", text)
        naming(path.parent, lambda: DeployedModel.open(path.parent))

    def exported(text: str) -> None:
        path = written(folder / "reported" / "manifest.json", text)
        naming(path.parent, lambda: repr(read_exported(path.parent)))

    def benched(text: str) -> None:
        path = written(model.with_name("manifest.json"), text)
        naming(path.parent, lambda: _manifest(model, small.sha256))

    def checkpoint(text: str) -> None:
        buffer = io.BytesIO()
        values = {"format": "hwbench-checkpoint", "schema": 1, "meta": text, "weights": {}}
        try:
            torch.save({**values, "digest": _digest(text, {})}, buffer)
        except UnicodeEncodeError:
            return  # no such file can be made
        path = folder / "checkpoint.pt"
        path.write_bytes(buffer.getvalue())
        naming(path, lambda: load_checkpoint(path))

    def checkpoint_bytes(text: str) -> None:
        path = written(folder / "other.pt", text)
        naming(path, lambda: load_checkpoint(path))

    def result(text: str) -> None:
        path = written(workspace.studies / "mine" / "result.json", text)
        naming(path, lambda: repr(read_result(workspace, "mine")))

    def best(text: str) -> None:
        path = written(workspace.studies / "best" / "result.json", text)
        naming(path, lambda: resolve(workspace, "best:best", 8))

    def journal(text: str) -> None:
        path = written(workspace.studies / "mine" / JOURNAL, text)
        _searched(path)

        def read() -> None:
            with open_study(path.parent, SETTINGS, optuna.samplers.RandomSampler(), 20):
                pass

        naming(Path(path.parent.name), read)  # other settings are no fault of the file: the study is named

    def knobs(text: str) -> None:
        found = Journal(written(folder / "knobs.jsonl", text))
        changes = found.changes()
        found.add(change)
        assert [one.knob for one in found.changes()] == [*(one.knob for one in changes), "boost"]
        found.drop(found.changes()[-1])

    def leases(text: str) -> None:
        written(lease._path("adb:1"), text)
        with lease.leased("adb:1"):
            pass
        path = written(lease._path("adb:2"), text)
        with path.open() as file:
            str(lease._read(file, "adb:2")).encode()
        lease.holders()

    def hosts(text: str) -> None:
        path = written(folder / "known_hosts", text)
        if KEY.data in known("board", [path]).revoked:
            return  # refused, as ``test_devices_revoked`` holds
        record(path, KEY)
        assert KEY in known("board", [path]).keys

    def described(text: str) -> None:
        written(description, text)
        cache.load(small.workload)

    def lab(text: str) -> None:
        virtual._running(written(virtual._record(workspace, "lab"), text))

    def videos(text: str) -> None:
        written(folder / "a.mp4", "")  # a list of which no video is there is refused
        path = written(folder / "videos.txt", text)
        naming(path, lambda: read_splits(path))

    def readings(text: str) -> None:
        path = written(folder / "readings.csv", text)
        naming(path, lambda: read_imu(path, ImuSpec(("x", "y"), "ms")).part(Fraction(0), Fraction(1), 5))

    def sustained(text: str) -> None:
        path = written(folder / "course.jsonl", text)
        naming(path, lambda: [json.dumps(course_to_json(one), allow_nan=False) for one in courses(path.parent)])
        naming(path, lambda: read_course(path))

    def flow(text: str) -> None:
        path = written(folder / "flow" / NOTE, text)
        naming(path, FlowFolder(path.parent).range_px)

    copies = data_sets(folder / "data-sets")

    def data_set(text: str) -> None:
        name, _, content = text.partition("\n")
        place = next(
            (one for one in copies if one[0] == name), copies[zlib.crc32(name.encode("utf-8", "replace")) % len(copies)]
        )
        _, reader, root, file, before = place
        written(file, content)
        try:
            naming(root, lambda: read_splits(root, reader=get_reader(reader)))
        finally:
            written(file, before)

    entries = recorded([GOLDEN / "study" / "journal.log"])[0].splitlines(keepends=True)
    manifests = recorded(sorted((GOLDEN / "manifest").glob("*.json")))
    texts = (UsageError,)
    return [
        fuzz.FuzzTarget("device.toml", device, devices(), texts),
        fuzz.FuzzTarget("space.toml", space, spaces(), texts),
        fuzz.FuzzTarget("model.toml", card, cards(), texts),
        fuzz.FuzzTarget("table.csv", table, short_tables(), texts),
        fuzz.FuzzTarget("manifest.json", manifest, manifests, texts),
        fuzz.FuzzTarget("manifest-report", exported, manifests, texts),
        fuzz.FuzzTarget("manifest-bench", benched, manifests, texts),
        fuzz.FuzzTarget("checkpoint-meta", checkpoint, [checkpoint_meta(workspace)], texts),
        fuzz.FuzzTarget("checkpoint-bytes", checkpoint_bytes, ["PK\x03\x04", "\x80\x02}q\0.", "{}"], texts),
        fuzz.FuzzTarget("result.json", result, recorded([GOLDEN / "study" / "result.json"]), texts),
        fuzz.FuzzTarget("study-best", best, recorded([GOLDEN / "study" / "result.json"]), texts),
        fuzz.FuzzTarget("study-journal", journal, ["".join(entries[:40]), "".join(entries[:8])], texts),
        fuzz.FuzzTarget("knob-journal", knobs, [json.dumps(vars(change)) + "\n"], ()),
        fuzz.FuzzTarget("lease", leases, [json.dumps(holder)], ()),
        fuzz.FuzzTarget("known_hosts", hosts, [HOSTS], ()),
        fuzz.FuzzTarget("build-cache", described, [json.dumps(artifact_to_json(small))], ()),
        fuzz.FuzzTarget("lab-record", lab, ['{"pid": 1, "adb": null}'], ()),
        fuzz.FuzzTarget("video-list", videos, VIDEOS, texts),
        fuzz.FuzzTarget("readings", readings, ["ms,x,y\n0,1,2.5\n10,-1e3,2\n"], texts),
        fuzz.FuzzTarget("flow-note", flow, ['{"range_px": 20.0, "method": "dis-medium"}'], texts),
        fuzz.FuzzTarget("course.jsonl", sustained, [COURSE], texts),
        fuzz.FuzzTarget("data-set", data_set, [f"{name}\n{before}" for name, *_, before in copies], texts),
    ]
