"""Bad input to every command: one clear error with the documented exit status, no traceback, and nothing lost."""

import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from prepared import BUDGET_MS, CHECKPOINT, INT8, PROGRAM, ROOT, STUDY, TARGET, VIDEOS, call, make

from hwbench.errors import MissingDependency
from hwbench.latency import table_path
from hwbench.runtimes import runners
from hwbench.spaces import load_space
from hwbench.workspace import Workspace

Spoil = Callable[[Path], object]
Command = tuple[str, ...]

STORE = ".hwbench/measurements.sqlite"
# The note of when the store was looked through; every command that opens it may write one.
CHECKED = ".hwbench/.measurements.sqlite.checked"
RESULT = f".hwbench/studies/{STUDY}/result.json"
JOURNAL = f".hwbench/studies/{STUDY}/journal.log"
TABLE = str(table_path(Path(), TARGET, INT8))
SPACE, DEVICE, CARD = "search_spaces/x3d-tiny.toml", "profiles/local/device.toml", "zoo/x3d-xs/model.toml"
RUN, MANIFEST = "runs/a", "model/manifest.json"
OTHER_MANIFEST = (Path(__file__).resolve().parents[1] / "golden" / "afbb81b" / "manifest-fp32.json").read_bytes()

PROFILE: Command = ("profile", "--precision", "int8")
VALIDATE: Command = ("validate",)
SEARCH: Command = ("search", "--budget", "4ms")
AGAIN: Command = ("search", "--budget", f"{BUDGET_MS}ms", "--study", STUDY, "--trials", "4")
QUICKSTART: Command = ("quickstart",)
BENCH: Command = ("bench", PROGRAM)
TEST: Command = ("test", CHECKPOINT)
EXPORT: Command = ("export", CHECKPOINT, "--out", "x")


def train(name: str) -> Command:
    return ("train", name, "--data", VIDEOS, "--epochs", "1", "--workers", "0", "--out", RUN)


def export(name: str) -> Command:
    return ("export", name, "--out", "x", "--weights", "random")


TRAIN = train(f"{STUDY}:best")


def named(command: Command) -> str:
    return " ".join(command)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("prepared") / "workspace"
    make(root)
    return root


@pytest.fixture
def workspace(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared workspace, which is the current directory."""
    root = tmp_path / "workspace"
    shutil.copytree(original, root)
    monkeypatch.chdir(root)

    def no_compiler(*args: object, **options: object) -> Path:
        raise MissingDependency("no C++ compiler")

    monkeypatch.setattr(runners, "build_runner", no_compiler)  # it takes longer than all tests here
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def lost(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Files that are gone or other than they were; a journal may have grown."""
    return [
        name
        for name, data in before.items()
        if name != CHECKED
        and after.get(name) != data
        and not (name == JOURNAL and after.get(name, b"").startswith(data))
    ]


def check_message(err: str, *fragments: str) -> None:
    """One error, which ends what is said, with everything in it that it must name."""
    assert "Traceback" not in err
    assert "unexpected" not in err.lower().replace("unexpected extra argument", "")
    lines = err.strip().splitlines()
    starts = [line.startswith("hwbench: ") for line in lines]
    assert starts.count(True) == 1, err
    message = "\n".join(lines[starts.index(True) :])
    assert [fragment for fragment in fragments if fragment not in message] == [], message


def refused(root: Path, command: Command, status: int, *fragments: str) -> None:
    before = contents(root)
    got, out, err = call(*command)
    assert (got, out) == (status, ""), err
    check_message(err, *fragments)
    assert lost(before, contents(root)) == []


# ---------------------------------------------------------------- names and values

OTHERS = [
    *[((*c, "--device", "lokal"), 2, ("unknown device 'lokal'", "did you mean 'local'"))
      for c in (PROFILE, VALIDATE, SEARCH, BENCH, QUICKSTART)],
    *[((*c, "--device", "s9"), 3, ("device 's9': ", "adb", ";"))
      for c in (PROFILE, BENCH, QUICKSTART)],
    *[((*c, "--device", "s9"), 2, ("no latency table of s9/", "hwbench profile --device s9"))
      for c in (VALIDATE, SEARCH)],
    *[((*c, "--space", "x3d-tyny"), 2, ("unknown space 'x3d-tyny'", "did you mean 'x3d-tiny'"))
      for c in (PROFILE, VALIDATE, SEARCH)],
    *[((*c, "--runtime", "executorc"), 2, ("unknown runtime 'executorc'", "did you mean 'executorch'"))
      for c in (PROFILE, VALIDATE, SEARCH)],
    *[((*c, "--precision", "int4"), 2, ("expected fp32, fp16, bf16 or int8, got 'int4'",))
      for c in (PROFILE, VALIDATE, SEARCH, EXPORT, BENCH, ("bench", "zoo:x3d-xs"))],
    *[((*c, "--threads", "0"), 2, ("--threads: expected at least 1, got 0",))
      for c in (PROFILE, VALIDATE, SEARCH, BENCH)],
    *[((*c, "--threads", str(threads)), 2, (f"--threads: expected 1 to 8192, got {threads}",))
      for c in (TRAIN, TEST, EXPORT)
      for threads in (0, 2**31)],
    *[((*c, "--classes", str(10**12)), 2, ("--classes: expected 1 to 1e+06, got 1000000000000",))
      for c in (PROFILE, VALIDATE, SEARCH, EXPORT, ("bench", "zoo:x3d-xs"))],
    *[((*c, "--threads", "2"), 2, ("/t2 in int8", "hwbench profile", "--threads 2")) for c in (VALIDATE, SEARCH)],
    *[((*c, f"--budget={budget}"), 2, ("--budget", *fragments))
      for c in (("search",), QUICKSTART)
      for budget, *fragments in (
          ("4", "'4' has no unit", '"4ms"'),
          ("4 parsecs", "unknown unit 'parsecs'", "known units: ns, us, µs, ms, s"),
          ("", "a positive number with a unit", '"60ms"'),
          ("-4ms", "a positive number with a unit", "'-4ms'"),
          ("nan ms", "a positive number with a unit", "'nan ms'"),
          ("0ms", "a finite time above zero", "'0ms'"),
          ("1e400ms", "a finite time above zero", "'1e400ms'"),
      )],
    *[(make_command(name), 2, fragments)
      for make_command in (train, export, lambda name: ("bench", name))
      for name, fragments in (
          ("zoo:x3d-xx", ("unknown zoo model 'x3d-xx'", "did you mean 'x3d-xs'")),
          ("dune:best", ("no finished study 'dune'", "did you mean 'done'", "hwbench search --budget")),
          (f"{'n' * 300}:best", ("expected a name of at most 230 letters, got 300: nnn", "nnn...; known: done")),
          *[(f"{study}:{which}", ("study: expected a name of letters", f"got {study!r}; ", "known: done"))
            for study, which in (("my study", "best"), ("a/b", "4ms"), ("../done", "best"), ("", "best"))],
          (f"{STUDY}:worst", ("unknown architecture 'done:worst'", "done:best")),
          ("x3d-tyny:frames=8", ("unknown space 'x3d-tyny'", "did you mean 'x3d-tiny'")),
          ("x3d-tiny:frames=8,resolution=65", ("resolution cannot be '65'", "nearest: 64")),
      )],
    *[(command, 2, ("unknown architecture 'x3d-xs'", "zoo:x3d-xs"))
      for command in (("bench", "x3d-xs"), train("x3d-xs"))],
    *[(command, 2, ("x3d-xs: No such file", "hwbench train ARCHITECTURE"))
      for command in (("test", "x3d-xs"), ("export", "x3d-xs", "--out", "x"), export("x3d-xs"))],
    # the architecture is looked at before the synthetic videos are made
    (("train", "zoo:x3d-xx"), 2, ("unknown zoo model 'x3d-xx'",)),
    *[((*c, "--data", "nodata"), 2, ("no data at nodata", "PATH or READER:PATH"))
      for c in (("train", f"{STUDY}:best"), TEST, EXPORT, (*SEARCH, "--evaluator", "short-train"))],
    *[((*c, "--data", ""), 2, ("--data: expected a value, got an empty one", "shell variable"))
      for c in (TRAIN[:2], TEST, EXPORT, SEARCH, ("scoreboard", STUDY))],
    *[((*c, word), 2, (f"{c[-1]}: expected a value, got an empty one", "shell variable"))
      for c in (("bench", f"{STUDY}:best", "--runtime"), (*SEARCH, "--study"), (*TRAIN[:2], "--out"))
      for word in ("", " ")],
    ((*TRAIN[:2], "--out="), 2, ("--out: expected a value, got an empty one",)),
    *[(("data", *c), 2, ("DATA: expected a value, got an empty one", "shell variable"))
      for c in (("check", ""), ("bench", ""), ("show", " "), ("prepare", "", "prepared"))],
    *[(c, 2, (f"{name}: expected a value, got an empty one", "shell variable"))
      for c, name in (
          (("data", "prepare", VIDEOS, " "), "OUT"),
          (("report", RUN, ""), "RUNS"),
          (("test", " "), "CHECKPOINT"),
      )],
    ((*TEST, "--data", "videos/train/grow"), 2, ("videos/train/grow",)),
    ((*TRAIN, "--optimizer", "sdg"), 2, ("--optimizer: expected adamw, lamb, lars, muon or sgd, got 'sdg'",)),
    ((*TRAIN, "--precision", "fp17"), 2, ("--precision: expected bf16, fp16 or fp32, got 'fp17'",)),
    *[((*c, option, value), 2, (f"{option}: expected a finite number, got {value}",))
      for c, option, value in (
          (TRAIN, "--lr", "nan"),
          (SEARCH, "--confidence", "nan"),
          (("report", RUN), "--watch", "inf"),
          ((*SEARCH, "--ray", "auto"), "--worker-gpus", "inf"),
      )],
    *[((*c, option, "nan"), 2, (f"{option}: expected a finite number, got nan",))
      for c, option in (
          (BENCH, "--seconds"),
          (("data", "bench", VIDEOS), "--seconds"),
          (("data", "prepare", VIDEOS, "prepared"), "--fps"),
          (EXPORT, "--keep-accuracy"),
      )],
    *[((*c, value), 2, (f"{c[-1]}: {message}",))
      for c, value, message in (
          ((*SEARCH, "--time"), "1e300s", "expected at most 1000000000 s, got '1e300s'"),
          (("data", "check", VIDEOS, "--time-limit"), "1e300 s", "expected at most 1000000000 s, got '1e300 s'"),
          (("report", RUN, "--watch"), "1e300", "expected 1 to 86400, got 1e+300"),
      )],
    ((*SEARCH, "--time", "nan"), 2, ("--time: expected a positive number with a unit", "'nan'")),
    (("profile", "--accuracy", "nan"), 2, ("--accuracy: expected a share such as 2% or 0.02, got 'nan'",)),
    ((*SEARCH, "--max-file-size", "1e300TiB"), 2, ("--max-file-size: expected a size with a unit",)),
    ((*TRAIN, "--span", "2"), 2, ("--span: '2' has no unit",)),
    ((*TRAIN, "--decoded-cache", "20"), 2, ("--decoded-cache: expected a size with a unit", '"10GiB"')),
    ((*TEST, "--decoded-cache", "much"), 2, ("--decoded-cache: expected a size with a unit",)),
    ((*TRAIN, "--decoder", "pyaw"), 2, ("unknown decoder 'pyaw'; did you mean 'pyav'?",)),
    *[((*c, "--on-error", "ignore"), 2, ("expected raise, skip or replace, got 'ignore'",))
      for c in (TRAIN, TEST, EXPORT, SEARCH)],
    *[((*c, "--device", "gpu"), 2, ("expected auto, cpu or cuda, got 'gpu'",)) for c in (TRAIN, TEST)],
    ((*EXPORT, "--variant", "bogus"), 2, ("unknown variant 'bogus'", "known: auto, im2col, one-hot")),
    ((*EXPORT, "--device", "loca"), 2, ("unknown device 'loca'", "did you mean 'local'")),
    ((*EXPORT, "--device", "local", "--variant", "one-hot"), 2, ("leave out --variant one-hot",)),
    (("profile", "--variants", "onehot"), 2, ("unknown variant 'onehot'", "did you mean 'one-hot'")),
    ((*EXPORT, "--weights", "random"), 2, ("trained.pt is a checkpoint", "leave out --weights")),
    (("export", f"{STUDY}:best", "--out", "x"), 2, ("without weights", "hwbench train done:best", "--weights random")),
    (("export", f"{STUDY}:best", "--out", "x", "--weights", "best"), 2, ("published or random; got 'best'",)),
    (("export", "zoo:x3d-xs", "--out", "x"), 2, ("Add --weights published", "fetched from https://", "X3D_XS.pyth")),
    *[((*c, "--weights", PROGRAM), 2, ("model/model.pte: damaged, or another kind of file", "weights of an X3D"))
      for c in (("export", "zoo:x3d-xs", "--out", "x"), ("train", "zoo:x3d-xs", "--data", VIDEOS))],
    (("export", "zoo:x3d-xs", "--out", "x", "--weights", CHECKPOINT), 2,
     ("trained.pt: weights of another network than zoo:x3d-xs", "missing: s")),
    (("train", "zoo:x3d-xs", "--data", VIDEOS, "--new-head"), 2, ("add --weights FILE",)),
    (("export", CHECKPOINT, "--out", CHECKPOINT), 2, ("--out: expected a folder, trained.pt is a file",)),
    (("export", CHECKPOINT), 2, ("missing option '--out'; see hwbench export --help",)),
    (("verify", "profiles/none.csv"), 2, ("no latency table profiles/none.csv; measure one: hwbench profile",)),
    (("bench", "nofile.pte"), 2, ("no file nofile.pte", "hwbench export CHECKPOINT --out DIR")),
    (("bench", VIDEOS), 2,
     ("videos: the folder holds no model file (model.pte, model.tflite, model.onnx, model.ovz or model.ts); ",
      "hwbench export CHECKPOINT --out DIR")),
    (("bench", CHECKPOINT), 2, ("expected a file that ends in .pte, .tflite, .onnx, .ovz or .ts", "hwbench export")),
    ((*BENCH, "--runtime", "torch"), 2, ("is a file for executorch", "zoo:x3d-xs")),
    (("test", PROGRAM), 2, ("model/model.pte: damaged, or another kind of file", "hwbench train ARCHITECTURE")),
    (("test", VIDEOS), 2, ("videos/checkpoint.pt: No such file", "hwbench train ARCHITECTURE")),
    ((*SEARCH, "--study", "../x"), 2, ("study: expected a name of letters", "'../x'; choose another one with --study")),
    ((*SEARCH, "--study", 300 * "n"), 2, ("a name of at most 230 letters, got 300: nnn", "n...; choose another one")),
    ((*SEARCH, "--study", "zoo"), 2, ("study: expected a name of its own, got 'zoo'", "choose another one with")),
    ((*SEARCH, "--study", STUDY), 2, ("exists with other settings: budget_ms was 4.2, now 4.0", "--study done-2")),
    # names are looked up before networks are counted, which tells that none is within the budget
    ((*SEARCH, "--budget", "1 us", "--evaluator", "entropie"), 2, ("unknown evaluator", "did you mean 'entropy'")),
    ((*SEARCH, "--budget", "1 us", "--sampler", "tpee"), 2, ("unknown sampler 'tpee'", "did you mean 'tpe'")),
    ((*SEARCH, "--objective", "speed"), 2, ("score or score,latency, got 'speed'",)),
    *[((*c, "--runtime", "torch", "--precision", precision), 2,
       ("the torch runtime builds fp32, fp16 and bf16, got int8", "--runtime executorch"))
      for c, precision in ((PROFILE, "int8"), (PROFILE, "fp32,int8"), (("bench", f"{STUDY}:best"), "int8"))],
    *[((*c, "--transfer-from", "lokal"), 2, ("unknown device 'lokal'", "did you mean 'local'"))
      for c in (SEARCH, VALIDATE)],
    *[((*c, "--transfer-from", "local"), 2, ("--transfer-from local: rows of local",))
      for c in (SEARCH, VALIDATE)],
    (("search",), 2, ("missing option '--budget'; see hwbench search --help",)),
    (("report", "dune"), 2, ("no finished study 'dune'", "did you mean 'done'")),
    (("report", "../x"), 2, ("../x: there is no such folder; expected the folder of a run",)),
    (("report", STUDY, "--model", "nodir"), 2, ("nodir: expected the folder of an exported model", "--out nodir")),
    (("report", STUDY, "--out", VIDEOS), 2, ("cannot write videos: it is a directory",)),
    (("init",), 2, ("missing argument 'DIR'; see hwbench init --help",)),
    (("init", CHECKPOINT), 2, ("cannot write", "trained.pt", "a part of the path is a file")),
    *[((name, "surplus"), 2, ("surplus",)) for name in ("doctor", "devices", "profile", "validate", "quickstart")],
    (("serch",), 2, ("no such command 'serch'; did you mean 'search'", "see hwbench --help")),
    (("devices", "--jsn"), 2, ("no such option: --jsn; did you mean '--json'? see hwbench devices --help",)),
    (("devices", "lst"), 2, ("no such command 'lst'; did you mean 'list'? see hwbench devices --help",)),
    (("devices", "--json", "list"), 2, ("hwbench devices list ... --json",)),
    *[(("devices", c), 2, (f"missing argument 'NAME'; see hwbench devices {c} --help",))
      for c in ("add", "show", "check", "prepare", "remove")],
    *[(("devices", c, "lokal"), 2, ("unknown device 'lokal'", "did you mean 'local'"))
      for c in ("show", "check", "prepare", "remove")],
    *[(("devices", c, "../local"), 2, ("unknown device '../local'",)) for c in ("show", "check", "prepare", "remove")],
    *[(("devices", "add", "--local", "--", name), 2, ("device name: expected letters", "hwbench devices add board"))
      for name in ("../x", "..", "", "-x", "a b", "a/b", "x\n", "\x1b[2J", "x" * 65)],
    (("devices", "add", "local", "--local"), 2, ("'local' is there already", "devices add local --local --force")),
    (("devices", "add", "box"), 2, ("expected a way to the device", "--ssh", "--adb")),
    (("devices", "add", "box", "--local", "--adb"), 2, ("expected one way", "--adb and --local")),
    (("devices", "add", "box", "--local", "--agent"), 2, ("--identity and --agent belong to --ssh",)),
    *[(("devices", "add", "box", f"--ssh={place}"), 2, ("--ssh: expected", "pi@pi5.local"))
      for place in ("", "-oProxyCommand=x", "pi@-x", "a b", "pi:x", "a\x1bb")],
    (("devices", "add", "box", "--ssh", "pi:0"), 2, ("--ssh: expected a port from 1 to 65535, got 0",)),
    *[(("devices", "add", "box", f"--adb={place}"), 2, ("--adb: expected a serial",)) for place in ("-x", "a b", "\n")],
    *[((*train("zoo:x3d-xs"), "--data", name), 2, ("no data at ~no-such-user", "data are synthetic"))
      for name in ("~no-such-user/clips", "folders:~no-such-user")],
    (("devices", "remove", "local", "--yes"), 2, ("'local' comes with hwbench and stays",)),
]  # fmt: skip


@pytest.mark.parametrize(("command", "status", "fragments"), OTHERS, ids=[named(case[0]) for case in OTHERS])
def test_wrong_names_and_values(workspace: Path, command: Command, status: int, fragments: tuple[str, ...]) -> None:
    before = set(contents(workspace))
    refused(workspace, command, status, *fragments)
    new = {
        name
        for name in set(contents(workspace)) - before
        if not name.startswith((".hwbench/studies/x3d-tiny_", CHECKED))
    }
    assert {Path(name).name for name in new} <= {".lock"}


def test_a_name_that_no_file_may_have_is_a_name_of_nothing(workspace: Path) -> None:
    """A printed architecture is longer than the name of a file, and so may a wrong word be."""
    space = load_space(Workspace(workspace), "x3d-mini")
    key = space.network(next(space.architectures()), 8).name
    long = "x" * 300
    assert len(key) > 255
    data, study, checkpoint = f"no data at {long}; data are", "study: expected a name of", "hwbench train ARCHITECTURE"
    for command, told in [
        *((("report", name), study) for name in (key, long)),
        *((("scoreboard", name), study) for name in (key, long, f"{key}/a")),
        *((("verify", name), "hwbench export CHECKPOINT --out DIR") for name in (key, long, f"{long}/a")),
        *((("test", name), checkpoint) for name in (key, long, f"{long}/a")),
        *((("train", name, "--qat", "--data", VIDEOS), checkpoint) for name in (key, long)),
        ((*TRAIN, "--teacher", key), checkpoint),
        (("export", long, "--out", "x"), checkpoint),
        (("export", f"{long}:best", "--out", "x"), "study: expected a name of at most 230 letters, got 300"),
        ((*export(f"{STUDY}:best")[:-1], long), "is no file"),
        ((*TRAIN, "--data", long), data),
        ((*TRAIN, "--modality", f"flow:{long}"), "is neither a folder nor a method"),
        ((*TEST, "--data", f"folders:{long}"), data),
        ((*EXPORT, "--calibrate", long), data),
        *((("data", *words), data) for words in (("check", long), ("show", long), ("prepare", long, "out"))),
        *(((*c, "--transfer-from", long), f"unknown device '{long}'") for c in (SEARCH, VALIDATE)),
        ((*SEARCH, "--learn-from", long), study),
        ((*SEARCH, "--learn-from", f"{long}.csv"), "no such file; expected a table of trainings"),
        (("profile", "diff", "local", long), f"no file, folder or device '{long}'"),
        (("report", STUDY, "--model", long), "found no manifest.json"),
        (("report", RUN, f"{long}/a"), "there is no such folder"),
    ]:
        refused(workspace, command, 2, told)


def test_what_is_to_be_written_under_too_long_a_name_is_refused_with_its_beginning(workspace: Path) -> None:
    long = "x" * 300
    for command in [
        ("init", long),
        (*EXPORT[:2], "--out", long),
        (*TRAIN, "--out", long),
        ("data", "check", VIDEOS, "--jobs", "0", "--out", long),
        ("data", "prepare", VIDEOS, long, "--jobs", "0"),
        ("data", "prepare", VIDEOS, "x/" * 3000, "--jobs", "0"),
    ]:
        status, out, err = call(*command)
        assert (status, out) == (2, "")
        check_message(err, "cannot use x", "...: longer than 255 bytes, or than a path may be; shorten it")
        assert len(err.splitlines()[-1]) < 150


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench x.pte --seconds abc", "--seconds: expected a number, got 'abc'"),
        ("bench x.pte --seconds -1", "--seconds: expected 0 to 86400, got -1.0"),
        ("search --budget 4ms --trials x", "--trials: expected a whole number, got 'x'"),
        ("search --budget 4ms --trials 2.5", "--trials: expected a whole number, got '2.5'"),
        ("search --budget 4ms --trials", "option '--trials' requires an argument; see hwbench search --help"),
        ("profile --threads 0", "--threads: expected at least 1, got 0"),
        ("profile --limit x", "--limit: expected a whole number, got 'x'"),
        ("profile --limit", "option '--limit' requires an argument; see hwbench profile --help"),
        ("search --trials 0", "--trials: expected at least 1, got 0"),
        ("search --budgte 4ms", "no such option: --budgte; did you mean '--budget'? see hwbench search --help"),
        ("data bench x --workers 1 --workers y", "--workers: expected a whole number, got 'y'"),
        ("data bench", "missing argument 'data'; see hwbench data bench --help"),
        ("bench x.pte --json=yes", "option '--json' does not take a value; see hwbench bench --help"),
        ("bench x.pte y.pte", "got unexpected extra argument(s) (y.pte); see hwbench bench --help"),
        ("init", "missing argument 'DIR'; see hwbench init --help"),
        ("--frobnicate", "no such option: --frobnicate; see hwbench --help"),
    ],
)
def test_what_typer_refuses_is_one_line_as_every_refusal(words: str, message: str) -> None:
    assert call(*words.split()) == (2, "", f"hwbench: {message}\n")


def test_the_program_alone_gives_its_help_and_status_2() -> None:
    status, out, err = call()
    assert (status, "Usage: hwbench" in out + err, "hwbench: " in err) == (2, True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--evaluator", "entropie"),
        ("--sampler", "tpee"),
        ("--objective", "speed"),
        ("--study", "../x"),
        ("--evaluator", "short-train", "--data", "nodata"),
        ("--evaluator", "short-train", "--data", "list:videos"),
    ],
    ids=named,
)
def test_a_search_refuses_names_before_it_leaves_a_study(workspace: Path, wrong: Command) -> None:
    """A study that held a misspelt name would refuse the same command, spelt right."""
    before = contents(workspace)
    refused(workspace, (*SEARCH, *wrong), 2, wrong[-1].partition(":")[0])
    assert contents(workspace) == before


def test_an_export_replaces_nothing_of_others(workspace: Path) -> None:
    for name in ("model.pte", "manifest.json"):
        (workspace / name).write_text('{"name": "mine"}')
    fragments = ("model.pte and manifest.json in", "came from no export", "choose another folder")
    refused(workspace, ("export", CHECKPOINT, "--precision", "fp32", "--out", "."), 2, *fragments)


def test_a_budget_that_no_network_meets(workspace: Path) -> None:
    command = ("search", "--device", "local", "--budget", "0.01ms", "--space", "x3d-tiny")
    refused(workspace, command, 4, "budget 10 µs", "'x3d-tiny'", "smallest reachable latency is 2.963 ms")
    assert call("search", "--budget", "2.964ms", "--study", "../x")[0] == 2  # that far it is feasible


def test_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = (
        PROFILE,
        VALIDATE,
        SEARCH,
        QUICKSTART,
        ("devices",),
        ("devices", "add", "x", "--local"),
        train("zoo:x3d-xs"),
        ("report", STUDY),
    )
    for command in (*names, ("bench", "zoo:x3d-xs"), ("test", "a.pt"), export("zoo:x3d-xs")):
        refused(tmp_path, command, 2, f"no workspace at {tmp_path}", "hwbench init DIR")
    status, _, err = call("doctor")
    assert (status, list(tmp_path.iterdir())) == (5, [])
    check_doctor(err, "no workspace at", "hwbench init DIR")


def check_doctor(err: str, *fragments: str) -> None:
    """``doctor`` goes through to the end, and says on stderr what is wrong and what to type."""
    assert "Traceback" not in err
    assert [fragment for fragment in fragments if fragment not in err] == [], err


# ---------------------------------------------------------------- files


def put(path: str, data: bytes) -> Spoil:
    def spoil(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    return spoil


def cut(path: str) -> Spoil:
    return lambda root: (root / path).write_bytes((root / path).read_bytes()[: (root / path).stat().st_size // 2])


def flip(path: str, at: int | None = None) -> Spoil:
    """Another byte at a place; in the middle by default."""

    def spoil(root: Path) -> None:
        data = bytearray((root / path).read_bytes())
        data[len(data) // 2 if at is None else at] ^= 0xFF
        (root / path).write_bytes(bytes(data))

    return spoil


def swap(path: str, old: str, new: str) -> Spoil:
    def spoil(root: Path) -> None:
        text = (root / path).read_text()
        assert old in text
        (root / path).write_text(text.replace(old, new, 1))

    return spoil


def foreign(root: Path) -> None:
    (root / STORE).unlink()
    with sqlite3.connect(root / STORE) as db:
        db.execute("CREATE TABLE recipes (name)")
    db.close()


MEMBERS = (TRAIN, ("bench", f"{STUDY}:best"), export(f"{STUDY}:best"))
CARDS = (train("zoo:x3d-xs"), ("bench", "zoo:x3d-xs"), export("zoo:x3d-xs"))
SPACES = (PROFILE, VALIDATE, SEARCH, QUICKSTART, *MEMBERS)
DEVICES = (
    PROFILE,
    VALIDATE,
    SEARCH,
    QUICKSTART,
    BENCH,
    *(("devices", c, "local") for c in ("show", "check", "prepare")),
)
TABLES = (PROFILE, VALIDATE, SEARCH, QUICKSTART)
STORES = (PROFILE, VALIDATE, AGAIN, QUICKSTART)
RESULTS = (*MEMBERS, ("report", STUDY))
GARBAGE = b"\xff\xfegarbage" * 100

FILES: dict[str, tuple[Spoil, tuple[Command, ...], tuple[str, ...]]] = {
    "space: misspelt key": (
        swap(SPACE, "resolution", "resolutoin"), SPACES, (SPACE, "'input.resolution' is missing", "resolutoin")),
    "space: one key more": (
        swap(SPACE, "[stem]", "[stem]\nwidht = 1"), SPACES[:1], (SPACE, "unknown key", "did you mean 'width'")),
    "space: no TOML": (swap(SPACE, "[input]", "[input"), SPACES[:3], (SPACE, "TOML", "line 7")),
    "space: no text": (put(SPACE, GARBAGE), SPACES[:1], (SPACE, "TOML")),
    "space: empty": (put(SPACE, b""), SPACES[:1], (SPACE, "'schema' is missing")),
    "space: newer": (swap(SPACE, "schema = 1", "schema = 7"), SPACES[:1], (SPACE, "schema", "7", "newer hwbench")),
    "device: misspelt key": (
        swap(DEVICE, "threads", "thraeds"), DEVICES, (DEVICE, "unknown key 'thraeds'", "did you mean 'threads'")),
    "device: forged fingerprint": (
        swap(DEVICE, "threads = 1", 'fingerprint = "x"'), DEVICES,
        (DEVICE, "fingerprint: expected 16 hexadecimal digits", "--force")),
    "device: no TOML": (swap(DEVICE, "schema = 1", "schema ="), DEVICES[:1], (DEVICE, "TOML", "line 2")),
    "device: no text": (put(DEVICE, GARBAGE), DEVICES[:1], (DEVICE, "TOML")),
    "card: misspelt key": (swap(CARD, "licence", "license"), CARDS, (CARD, "'licence' is missing", "license")),
    "card: cut off": (cut(CARD), CARDS[:1], (CARD,)),
    "table: other target": (
        swap(TABLE, "/t1;", "/t4;"), TABLES,
        (TABLE, "expected a table of local/", "/t4", "move it away", "hwbench profile")),
    "table: other precision": (
        swap(TABLE, "precision=int8", "precision=fp32"), TABLES, (TABLE, "fp32", "hwbench profile")),
    "table: cut off": (cut(TABLE), TABLES, (TABLE, "expected 13 columns", "hwbench profile")),
    "table: no text": (put(TABLE, GARBAGE), TABLES, (TABLE, "cannot be read", "hwbench profile")),
    "table: empty": (put(TABLE, b""), TABLES, (TABLE, "expected a first line", "hwbench profile")),
    "table: misspelt column": (
        swap(TABLE, "median_s", "medain_s"), TABLES, (TABLE, "expected the columns", "medain_s", "hwbench profile")),
    "table: negative": (swap(TABLE, ",ok,", ",ok,-"), TABLES, (TABLE, "line 3", "above zero", "hwbench profile")),
    "store: cut off": (cut(STORE), STORES, (STORE, "mv ", f"{STORE}.old")),
    "store: no SQLite": (put(STORE, GARBAGE), STORES, (STORE, "mv ", f"{STORE}.old")),
    "store: header": (flip(STORE, 3), STORES, (STORE, "mv ", f"{STORE}.old")),
    "store: of another program": (foreign, STORES, (STORE, "of another program", "mv ")),
    "checkpoint: cut off": (cut(CHECKPOINT), (TEST, EXPORT), (CHECKPOINT, "damaged", "hwbench train ARCHITECTURE")),
    "checkpoint: other byte": (flip(CHECKPOINT), (TEST, EXPORT), (CHECKPOINT, "digest", "train or copy it again")),
    "checkpoint: no checkpoint": (
        put(CHECKPOINT, GARBAGE), (TEST, EXPORT), (CHECKPOINT, "damaged", "hwbench train ARCHITECTURE")),
    "checkpoint: empty": (put(CHECKPOINT, b""), (TEST, EXPORT), (CHECKPOINT, "damaged", "hwbench train ARCHITECTURE")),
    "checkpoint of a run": (put(f"{RUN}/checkpoint.pt", GARBAGE), (TRAIN,), (f"{RUN}/checkpoint.pt", "move it away")),
    "state of a run": (put(f"{RUN}/resume.pt", GARBAGE), (TRAIN,), (f"{RUN}/resume.pt", "move it away")),
    "result: cut off": (cut(RESULT), RESULTS, (RESULT, "damaged", "run the search again")),
    "result: list": (put(RESULT, b"[]"), RESULTS, (RESULT, "expected one JSON object", "run the search again")),
    "result: no text": (put(RESULT, GARBAGE), RESULTS, (RESULT, "damaged", "run the search again")),
    "result: empty": (put(RESULT, b"{}"), RESULTS, (RESULT, "run the search again")),
    "journal: no journal": (put(JOURNAL, b'{"a": 1}\n'), (AGAIN,), (JOURNAL, "damaged", "--study")),
    "journal: no text": (put(JOURNAL, GARBAGE + b"\n"), (AGAIN,), (JOURNAL, "damaged", "--study")),
    "manifest: no JSON": (
        put(MANIFEST, b"{"), (BENCH, ("report", STUDY, "--model", "model")), (MANIFEST, "again")),
    "manifest: of another file": (
        put(MANIFEST, OTHER_MANIFEST), (BENCH,), (PROGRAM, "sha256", "export it again")),
    "program: no program": (put(PROGRAM, GARBAGE), (BENCH,), (PROGRAM, "an ExecuTorch program", "export it again")),
    "program: empty": (put(PROGRAM, b""), (BENCH,), (PROGRAM, "an ExecuTorch program", "export it again")),
    "program: cut off": (cut(PROGRAM), (BENCH,), (PROGRAM, "export it again")),
    "video to train on": (
        put(f"{VIDEOS}/train/grow/00000.mp4", b"x"), (TRAIN,), ("train/grow/00000.mp4", "damaged", "--on-error skip")),
    "video to test on": (
        put(f"{VIDEOS}/val/grow/00000.mp4", b"x"), ((*TEST, "--clips", "1", "--crops", "1", "--workers", "0"),),
        ("val/grow/00000.mp4", "damaged", "--on-error skip")),
    "no videos to test on": (
        lambda root: shutil.rmtree(root / VIDEOS / "val"), (TEST,), (VIDEOS, "train/ without val/", "--data")),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "command"),
    [pytest.param(name, c, id=f"{name} - {named(c)}") for name, (_, commands, _) in FILES.items() for c in commands],
)
def test_damaged_files(workspace: Path, name: str, command: Command) -> None:
    spoil, _, fragments = FILES[name]
    spoil(workspace)
    refused(workspace, command, 2, *fragments)


def test_devices_lists_what_is_wrong_with_a_device(workspace: Path) -> None:
    swap(DEVICE, "threads", "thraeds")(workspace)
    before = contents(workspace)
    status, out, err = call("devices", "--json")
    assert (status, err) == (0, "")
    (local,) = [found for found in json.loads(out)["devices"] if found["name"] == "local"]
    assert "unknown key 'thraeds'; did you mean 'threads'" in local["description"]
    assert contents(workspace) == before


def test_doctor_says_that_the_store_is_damaged(workspace: Path) -> None:
    cut(STORE)(workspace)
    before = contents(workspace)
    status, _, err = call("doctor")
    assert status == 5
    check_doctor(err, "measurements: ", STORE, "mv ")
    assert contents(workspace) == before


@pytest.mark.parametrize(
    ("spoil", "fragment"),
    [
        (swap(SPACE, "resolution", "resolutoin"), "key 'input.resolution' is missing"),
        (swap(TABLE, "/t1;", "/t4;"), "expected a table of local/"),
        (cut(TABLE), "expected 13 columns"),
        (cut(STORE), "mv "),
    ],
    ids=["space", "table of another target", "table", "store"],
)
def test_report_does_without_what_is_damaged_and_says_so(workspace: Path, spoil: Spoil, fragment: str) -> None:
    spoil(workspace)
    before = contents(workspace)
    status, out, err = call("report", STUDY, "--json")
    assert status == 0, err
    assert "Traceback" not in err
    assert fragment in " ".join(json.loads(out)["missing"])
    assert lost(before, contents(workspace)) == []


# ---------------------------------------------------------------- files that would run code


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def saved(value: object, path: Path, form: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "pickle":
        path.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, path, _use_new_zipfile_serialization=form == "zip")


@pytest.mark.parametrize("form", ["pickle", "zip", "legacy"])
@pytest.mark.parametrize(
    ("path", "command"),
    [(CHECKPOINT, TEST), (CHECKPOINT, EXPORT), (f"{RUN}/checkpoint.pt", TRAIN), (f"{RUN}/resume.pt", TRAIN)],
    ids=["test", "export", "train: checkpoint", "train: resume"],
)
def test_a_checkpoint_runs_no_code(workspace: Path, path: str, command: Command, form: str) -> None:
    trap = workspace / "trap"
    saved({"format": "hwbench-checkpoint", "schema": 1, "meta": Touch(trap)}, workspace / path, form)
    way = "hwbench train" if path == CHECKPOINT else "move it away"  # nothing else tells of a run there
    refused(workspace, command, 2, path, "damaged, or another kind of file", way)
    assert not trap.exists()
    if form == "pickle":  # the trap works
        pickle.loads((workspace / path).read_bytes())
        assert trap.exists()


# ---------------------------------------------------------------- workspaces that take nothing more


def strained(root: Path, mode: str, commands: list[Command], *options: str) -> list[tuple[Command, int, str, str]]:
    """What came of command lines in a process that has no rights or no room."""
    program = ROOT / "tests" / "cli" / "prepared.py"
    done = subprocess.run(
        [sys.executable, str(program), mode, str(root), json.dumps(commands), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(tuple(one["arguments"]), one["status"], one["out"], one["err"]) for one in found]


NEXT = ("nothing already stored was lost", "run the same command again")


def test_a_read_only_workspace(workspace: Path) -> None:
    state = str(workspace / ".hwbench")
    places = {
        ("init", "new"): str(workspace / "new"),
        PROFILE: state,
        VALIDATE: state,
        SEARCH: state,
        AGAIN: state,
        QUICKSTART: state,
        ("train", f"{STUDY}:best"): state,
        ("train", "zoo:x3d-xs", "--data", VIDEOS): "runs",
        TRAIN: state,
        EXPORT: "x: ",
        ("export", CHECKPOINT, "--out", "zoo"): "zoo/",
        export(f"{STUDY}:best"): state,
        ("bench", f"{STUDY}:best"): state,
        BENCH: state,
        ("report", STUDY): state,
        ("devices", "add", "box", "--local"): "profiles/box",
    }
    before = contents(workspace)
    fine = [("devices",), ("init", "."), (*TEST, "--clips", "1", "--crops", "1", "--workers", "0")]
    try:
        answers = strained(workspace, "read-only", [*places, *fine, ("doctor",)])
    finally:
        for path in (workspace, *workspace.rglob("*")):
            path.chmod(0o755)
    for command, status, out, err in answers[: len(places)]:
        assert (status, out) == (2, ""), (command, err)
        check_message(err, "cannot write ", places[command], "not writable", *NEXT)
    assert [status for _, status, _, _ in answers[len(places) : -1]] == [0] * len(fine)  # they write nothing
    assert answers[-1][1] == 5
    check_doctor(answers[-1][3], "workspace: cannot write", state, "not writable")
    assert contents(workspace) == before


@pytest.mark.parametrize(
    ("mode", "room", "reason"),
    [("small-disk", 12_000, "no space is left on the disk"), ("small-files", 1500, "larger than the limit allows")],
)
def test_no_space_left(workspace: Path, mode: str, room: int, reason: str) -> None:
    places = {
        ("init", "new"): "new/",
        SEARCH: ".hwbench/studies/x3d-tiny_local_int8_4ms_fitted",
        (*AGAIN[:-1], "99"): f".hwbench/studies/{STUDY}",
        TRAIN: RUN,
        (*TRAIN, "--fresh"): RUN,
        ("train", f"{STUDY}:best"): ".hwbench/data",
        ("report", STUDY): "report.html",
    }
    before = contents(workspace)
    answers = strained(workspace, mode, [*places, ("devices",)], str(room))
    if not answers:
        pytest.skip("a disk of its own takes the right to mount: run the tests as root")
    for command, status, out, err in answers[:-1]:
        assert (status, out) == (2, ""), (command, err)
        check_message(err, "cannot write ", places[command], reason, *NEXT)
        assert "without --fresh" not in err  # nothing was trained that would go on
    assert answers[-1][1] == 0
    after = contents(workspace)
    assert lost(before, after) == []
    assert [name for name in after if name.endswith(".tmp")] == []
    # what init wrote it wrote whole: a part of a file would be taken for the user's own
    assert all(after[name] == before[name.removeprefix("new/")] for name in after if name.startswith("new/"))
    # the studies have whole lines only, and go on
    for name in after:
        if name.endswith("journal.log"):
            assert all(isinstance(json.loads(line), dict) for line in after[name].splitlines())
            assert not after[name] or after[name].endswith(b"\n")
