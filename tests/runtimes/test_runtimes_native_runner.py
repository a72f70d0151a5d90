"""The C++ and the Python runner as processes: the same arguments, the same answers."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import hwbench.runtimes
from hwbench.errors import CheckFailed, InvalidFile
from hwbench.runtimes.machine import Machine, status_kb
from hwbench.runtimes.protocol import (
    MAX_COPIES,
    Begin,
    End,
    Error,
    Load,
    Operations,
    Options,
    Start,
    Visit,
    leaves,
    parse_line,
)
from hwbench.runtimes.python_models import mix
from hwbench.runtimes.python_runner import num_copies, shuffled
from hwbench.runtimes.runners import check_file, python_runner
from hwbench.testing.models import SmallNet, small_net, write_eager

GOLDEN = Path(__file__).parents[1] / "golden" / "pte"
QUICK = {"warm_ms": 1.0, "min_ms": 1.0, "max_ms": 20.0, "min_samples": 3, "cpus": (min(os.sched_getaffinity(0)),)}


def run(runner, options):
    done = subprocess.run(
        [*runner.command, *options.argv()],
        capture_output=True,
        text=True,
        env={**os.environ, **runner.env},
        timeout=240,
    )
    return done, [parse_line(line) for line in done.stdout.splitlines()]


def write_list(folder, files, visits=()):
    path = folder / "list.tsv"
    counts = dict(visits)
    lines = [f"{id}\t{file}" + (f"\t{counts[id]}" if id in counts else "") for id, file in files.items()]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def visits(messages):
    return [(message.round, message.id) for message in messages if isinstance(message, Visit)]


@pytest.fixture(scope="module")
def broken(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("broken")
    whole = files["small"].read_bytes()
    (folder / "truncated.pte").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.pte").write_bytes(b"")
    (folder / "text.pte").write_text("not a model\n" * 100)
    (folder / "garbled.pte").write_bytes(whole[:100] + bytes(len(whole) - 100))
    return {path.stem: path for path in sorted(folder.iterdir())} | {"missing": folder / "missing.pte"}


@pytest.fixture(scope="module")
def both(native, files, broken, tmp_path_factory):
    """Both runners' messages about the same list."""
    folder = tmp_path_factory.mktemp("both")
    good = {name: files[name] for name in ("small", "wide", "int8")}
    listing = write_list(folder, {**good, **broken}, {"int8": 1})
    options = Options(list=listing, rounds=3, seed=5, sentinel=str(files["wide"]), sentinel_every=4, **QUICK)
    return {runner.kind: run(runner, options) for runner in (native, python_runner())}


@pytest.mark.parametrize("kind", ["native", "python"])
def test_every_file_is_visited_once_per_round_and_a_broken_one_costs_itself(both, broken, kind):
    done, messages = both[kind]
    assert done.returncode == 0, done.stderr
    assert isinstance(messages[0], Start)
    assert messages[0].runner == kind
    assert (messages[0].threads, messages[0].cpus) == (1, QUICK["cpus"])
    assert messages[0].versions["executorch"] == "1.5.1"
    assert isinstance(messages[-1], End)
    normal = [visit for visit in visits(messages) if visit[1] != "sentinel"]
    expected = {(number, id): 1 for number in range(3) for id in ("small", "wide")} | {(2, "int8"): 1}
    assert Counter(normal) == expected
    errors = {message.id: message for message in messages if isinstance(message, Error)}
    assert set(errors) == set(broken)
    assert {error.stage for error in errors.values()} == {"load"}
    assert all(error.reason for error in errors.values())


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_line_says_what_comes_before_it_is_touched(both, kind):
    _, messages = both[kind]
    current, loaded = None, []
    for message in messages[1:-1]:
        if isinstance(message, Begin):
            current = message.id
        else:
            assert message.id == current
        if isinstance(message, Load):
            loaded.append(message.id)
    # Each visit loads its file anew, so that where memory comes to lie differs between sessions; the sentinel's do not.
    assert Counter(loaded) == {"int8": 1, "sentinel": 1, "small": 3, "wide": 3}


@pytest.mark.parametrize("kind", ["native", "python"])
def test_what_a_session_says(both, kind):
    _, messages = both[kind]
    for visit in (message for message in messages if isinstance(message, Visit)):
        assert len(visit.samples_ns) >= 1
        assert sum(visit.samples_ns) <= visit.wall_ns
        assert visit.maxrss_kb > 1000
        assert visit.cpu_ns > 0


def test_the_memory_of_a_session_is_that_of_the_runner_and_not_of_who_started_it(native, files, tmp_path):
    peak_kb = status_kb(Path("/proc/self/status").read_text(), "VmHWM")
    if not peak_kb:
        pytest.skip("the kernel tells no VmHWM")
    ballast = np.ones(64 << 20)  # of the parent, which forks without a copy
    _, messages = run(native, Options(list=write_list(tmp_path, {"small": files["small"]}), **QUICK))
    (visit,) = [message for message in messages if isinstance(message, Visit)]
    assert 1000 < visit.maxrss_kb < ballast.nbytes / 1024


@pytest.mark.parametrize("kind", ["native", "python"])
def test_the_sentinel_comes_first_and_after_every_few_visits(both, kind):
    _, messages = both[kind]
    begun = [message.id for message in messages if isinstance(message, Begin)]
    places = [at for at, id in enumerate(begun) if id == "sentinel"]
    assert places[0] == 0
    assert {after - before for before, after in pairwise(places)} == {5}


def test_both_runners_take_the_same_random_order(both):
    orders = [[message.id for message in messages if isinstance(message, Begin)] for _, messages in both.values()]
    assert orders[0] == orders[1]


def order(native, files, tmp_path, seed, rounds=4):
    listing = write_list(tmp_path, {str(number): files["small"] for number in range(6)})
    done, messages = run(native, Options(list=listing, rounds=rounds, seed=seed, **QUICK))
    assert done.returncode == 0
    return [id for _, id in visits(messages)]


def test_orders_are_random_fresh_in_each_round_and_seeded(native, files, tmp_path):
    first = order(native, files, tmp_path, 0)
    assert first == order(native, files, tmp_path, 0)
    rounds = [tuple(first[at : at + 6]) for at in range(0, 24, 6)]
    assert len(set(rounds)) == 4
    assert all(sorted(round) == list("012345") for round in rounds)


def test_every_order_is_as_likely_as_the_others():
    counts = Counter(tuple(shuffled(4, mix(seed + 1))[0]) for seed in range(4800))
    assert len(counts) == 24
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 60  # chi-squared of 23 degrees: p < 1e-4


def test_samples_end_at_the_minimum_or_at_the_maximum(native, files, tmp_path):
    listing = write_list(tmp_path, {"a": files["small"]})
    for options, low, high in (
        ({"min_ms": 0.0, "min_samples": 7, "max_ms": 1e5}, 7, 7),
        ({"min_ms": 0.0, "min_samples": 100000, "max_ms": 0.0}, 1, 1),
        ({"min_ms": 20.0, "min_samples": 1, "max_ms": 1e5}, 2, 10**6),
    ):
        _, messages = run(native, Options(list=listing, **{**QUICK, **options}))
        (visit,) = (message for message in messages if isinstance(message, Visit))
        assert low <= len(visit.samples_ns) <= high
        assert visit.wall_ns >= 1e6 * options["min_ms"]


def probed(runner, files, tmp_path, **options):
    listing = write_list(tmp_path, {"a": files["small"]})
    done, messages = run(runner, Options(list=listing, **{**QUICK, "probe": True, **options}))
    assert done.returncode == 0, done.stderr
    (visit,) = (message for message in messages if isinstance(message, Visit))
    return visit


def test_a_probe_tells_the_clock_and_how_crowded_the_core_is(native, files, tmp_path):
    visit = probed(native, files, tmp_path)
    # 64,000 cycles or fewer, at 100 MHz to 10 GHz; as much independent work as fits takes 0.3 to 30 times as long.
    assert 2_000 < visit.probe_ns < 2_000_000
    assert 300_000 < visit.crowding_ppm < 30_000_000
    # Four megabytes at 1 to 1000 GB/s; nothing is told where the core is shared whenever it is asked for.
    assert visit.memory_ppm == 0 or 4e3 < visit.memory_ppm * 1e-6 * visit.probe_ns < 4e6
    assert len(visit.samples_ns) >= 3


def test_a_core_that_is_never_quiet_is_measured_after_some_patience(native, files, tmp_path):
    visit = probed(native, files, tmp_path, quiet_ppm=1)
    assert visit.disturbed == len(visit.samples_ns) >= QUICK["min_samples"]
    assert visit.wall_ns >= sum(visit.samples_ns)


def test_memory_that_others_always_use_is_measured_after_some_patience(native, files, tmp_path):
    visit = probed(native, files, tmp_path, memory_ppm=1)
    assert len(visit.samples_ns) >= 3


# Reads "TIMES CROWDING", learns from so many probes, and tells whether the last of them was of a quiet core.
WATCH = """
#include <iostream>
#include "probe.h"
int main(int, char** known) {
  hwbench::Watch watch(std::stoull(known[1]), 0);
  int times = 0;
  for (double crowding = 0; std::cin >> times >> crowding;) {
    const hwbench::Probe seen{20'000, static_cast<int64_t>(20'000 * crowding)};
    for (int i = 0; i < times; ++i) watch.note(seen);
    std::cout << watch.quiet(seen);
  }
}
"""


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    """What a watch thinks of probes, given as (times, crowding)."""
    folder = tmp_path_factory.mktemp("watch")
    (folder / "watch.cpp").write_text(WATCH)
    native = Path(hwbench.runtimes.__file__).parent / "native"
    subprocess.run(["c++", "-std=c++20", "-I", native, folder / "watch.cpp", "-o", folder / "watch"], check=True)

    def quiet(*seen, known_ppm=0):
        lines = "".join(f"{times} {crowding}\n" for times, crowding in seen)
        command = [folder / "watch", str(known_ppm)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=60)
        return [letter == "1" for letter in done.stdout]

    return quiet


def test_a_quiet_core_is_known_by_what_is_often_seen_of_it(watch):
    assert watch((15, 1.6), (16, 0.9), (1, 1.05), (1, 0.99), (1, 1.3)) == [True, True, False, True, False]
    assert watch((1, 0.9), (1, 1.3), known_ppm=900_000) == [True, False]


def test_what_looks_quieter_for_a_moment_does_not_make_a_quiet_core_crowded(watch):
    """The first loop takes longer after some files, and where it was interrupted."""
    assert watch((30, 0.8), (20, 0.907), (600, 0.907)) == [True, False, True]
    assert watch((30, 0.8), (600, 1.6), (40, 0.907)) == [True, True, True]


def test_a_runner_in_python_does_not_probe(files, tmp_path):
    visit = probed(python_runner(), files, tmp_path)
    assert (visit.probe_ns, visit.crowding_ppm, visit.memory_ppm, visit.disturbed) == (0, 0, 0, 0)


def memory_of(process):
    (line,) = (line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmRSS" in line)
    return 1024 * int(line.split()[1])


@pytest.mark.parametrize("state", ["warm", "rotate", "flush"])
def test_caches_are_left_alone_filled_by_copies_or_written_over(native, files, tmp_path, state):
    listing = write_list(tmp_path, {"a": files["wide"]})
    options = Options(list=listing, cache=state, warm_ms=1.0, min_ms=20_000, max_ms=20_000)
    cache = Machine().last_cache_bytes()
    process = subprocess.Popen([*native.command, *options.argv()], stdout=subprocess.PIPE, text=True)
    try:
        assert isinstance([parse_line(process.stdout.readline()) for _ in range(3)][-1], Load)
        deadline = time.monotonic() + (10 if state == "flush" else 0.5)
        while memory_of(process) < 1.9 * cache and time.monotonic() < deadline:
            time.sleep(0.05)
        # What is written over is twice as large as the last cache; the runner alone is small.
        assert (memory_of(process) > 1.9 * cache) == (state == "flush")
        open_files = [os.path.realpath(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        copies = num_copies(files["wide"].stat().st_size, cache) if state == "rotate" else 1
        assert open_files.count(str(files["wide"].resolve())) == copies
    finally:
        process.kill()
        process.communicate()


def test_copies_fill_the_last_cache_twice_within_limits():
    assert num_copies(1 << 20, 4 << 20) == 8
    assert num_copies((1 << 20) + 1, 4 << 20) == 8
    assert num_copies(1 << 30, 4 << 20) == 2
    assert num_copies(0, 4 << 20) == num_copies(100, 4 << 20) == MAX_COPIES


def test_no_warm_up_is_possible(native, files, tmp_path):
    done, messages = run(native, Options(list=write_list(tmp_path, {"a": files["small"]}), **{**QUICK, "warm_ms": 0.0}))
    assert done.returncode == 0
    assert len(visits(messages)) == 1


def test_an_empty_list_is_done_at_once(native, tmp_path):
    (tmp_path / "list.tsv").write_text("")
    done, messages = run(native, Options(list=str(tmp_path / "list.tsv")))
    assert (done.returncode, [type(message) for message in messages]) == (0, [Start, End])


def test_threads_are_as_many_as_asked_for(native, files, tmp_path):
    options = Options(
        list=write_list(tmp_path, {"a": files["small"]}), threads=2, min_ms=3000, max_ms=3000, timeout_s=60
    )
    process = subprocess.Popen([*native.command, *options.argv()], stdout=subprocess.PIPE, text=True)
    try:
        start = parse_line(process.stdout.readline())
        assert start.threads == 2
        for _ in range(2):
            process.stdout.readline()
        assert len(os.listdir(f"/proc/{process.pid}/task")) == 2
    finally:
        process.kill()
        process.communicate()
    one = run(native, Options(list=options.list, **QUICK))[1]
    assert one[0].threads == 1


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--list", "/no/such/list"],
        ["--list"],
        ["--lists", "x"],
        ["--list", "x", "--check", "y"],
        ["--list", "x", "--threads", "0"],
        ["--list", "x", "--rounds", "many"],
        ["--list", "x", "--rounds", "-1"],
        ["--list", "x", "--warm-ms", "1ms"],
        ["--list", "x", "--cache", "cold"],
        ["--list", "x", "--cpus", "100000"],
        ["--list", "x", "--cpus", "0,"],
    ],
)
def test_wrong_arguments_are_told_and_end_with_2(native, argv):
    done = subprocess.run([*native.command, *argv], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("runner: ")


def test_a_visit_that_takes_too_long_ends_the_runner_by_the_alarm(native, files, tmp_path):
    options = Options(list=write_list(tmp_path, {"a": files["small"]}), timeout_s=1, min_ms=60000, max_ms=60000)
    done, messages = run(native, options)
    assert done.returncode == -signal.SIGALRM
    assert isinstance(messages[-1], Load)


def test_the_runner_ends_when_nobody_listens(native, files, tmp_path):
    options = Options(list=write_list(tmp_path, {"a": files["small"]}), rounds=100000, **QUICK)
    process = subprocess.Popen([*native.command, *options.argv()], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGPIPE


def test_both_runners_compute_the_same(native, files):
    chance = np.random.default_rng(0)
    values = chance.standard_normal((2, 3, 16, 16)).astype(np.float32)
    for name, given in (("last", values), ("int8", None)):
        first = check_file(files[name], given, runner=native)
        second = check_file(files[name], given, runner=python_runner())
        assert first.output.shape == (2, 5)
        assert np.isfinite(first.output).all()
        assert np.array_equal(first.output, second.output), name
        assert min(first.load_s, first.first_s, second.load_s, second.first_s) > 0


def test_what_comes_out_is_what_the_module_computes(native, files, tmp_path):
    values = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    with torch.inference_mode():
        expected = SmallNet()(torch.from_numpy(values)).numpy()
    for name in ("small", "last"):
        deployed = check_file(files[name], values, runner=native).output
        np.testing.assert_allclose(deployed, expected, rtol=1e-4, atol=1e-5)
    eager = check_file(write_eager(tmp_path / "small.eager.json"), values).output
    np.testing.assert_allclose(eager, expected, rtol=1e-5, atol=1e-6)


def test_files_of_the_format_of_today_open_for_ever(native):
    result = check_file(GOLDEN / "small-1.5.1.pte", runner=native)
    np.testing.assert_allclose(result.output[0], [0.165961, -0.215769, -0.0769797, -0.246502, -0.0053821], rtol=1e-4)


@pytest.mark.parametrize("name", ["truncated", "empty", "text", "garbled", "missing"])
def test_checking_a_broken_file(native, broken, name):
    with pytest.raises(InvalidFile, match=f"{name}.pte: expected a model that can be loaded: .+"):
        check_file(broken[name], runner=native)


def test_checking_a_file_of_a_runtime_that_is_not_installed(tmp_path):
    file = tmp_path / "model.pt2"
    file.write_bytes(b"PK")
    with pytest.raises(
        InvalidFile, match=r"model\.pt2: no runtime that is installed has files called \*\.pt2; install"
    ):
        check_file(file)


def test_checking_a_file_that_aborts_its_process(native):
    with pytest.raises(CheckFailed, match=r"abort.*killed by SIGABRT; it last said: .*not a Tensor"):
        check_file(GOLDEN / "abort-1.5.1.pte", runner=native)


def test_checking_with_an_input_of_the_wrong_size(native, files):
    with pytest.raises(InvalidFile, match="needs 6144 bytes, the file has 12"):
        check_file(files["small"], np.zeros(3, np.float32), runner=native)


def test_checking_with_a_full_disk_for_the_output(native, files):
    done, messages = run(native, Options(check=str(files["small"]), output="/dev/full"))
    assert (done.returncode, messages[-1]) == (1, Error("check", "write", "/dev/full: No space left on device"))


def test_operations_in_order_with_the_names_of_the_engine(native, files, tmp_path):
    listing = write_list(tmp_path, {"a": files["small"]})
    found = {}
    for runner in (native, python_runner()):
        done, messages = run(runner, Options(list=listing, profile=True, **{**QUICK, "min_samples": 50}))
        assert done.returncode == 0, done.stderr
        (ops,) = (message for message in messages if isinstance(message, Operations))
        found[runner.kind] = [name for name, _, _ in leaves(ops.ops)]
        assert all(count >= 1 for _, _, count in ops.ops)
        assert sum(ns for _, ns, _ in leaves(ops.ops)) > 0
    assert found["native"] == found["python"]
    assert found["native"] == [
        "Transpose (ND, X32) #1",
        "Convolution (NHWC, F32) IGEMM #1",
        "Convolution (NHWC, F32) DWConv #1",
        "Fully Connected (NC, F32) GEMM #1",
        "Transpose (ND, X32) #2",
        "mean.out",
    ]


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    """The Python runner's messages about eager files, good and bad, timed and by operation."""
    folder = tmp_path_factory.mktemp("eager")
    good = write_eager(folder / "good.eager.json")
    contents = {
        "foreign": {"module": "os:system", "argument": "true"},
        "relative": {"module": "hwbench_evil.x:y", "argument": ""},
        "unknown": {"module": "hwbench.testing.models:nothing", "argument": ""},
        "raising": {"module": "hwbench.testing.models:small_net", "argument": "x"},
        "keyless": {"workload": "x"},
        "list": [],
    }
    bad = {name: folder / f"{name}.eager.json" for name in contents}
    for name, content in contents.items():
        bad[name].write_text(json.dumps(content))
    bad["broken"] = folder / "broken.eager.json"
    bad["broken"].write_text("{")
    listing = write_list(folder, {"good": good, **bad})
    timed = run(python_runner(), Options(list=listing, rounds=2, **QUICK))
    profiled = run(python_runner(), Options(list=listing, profile=True, **QUICK))
    return timed, profiled, set(bad)


def test_eager_modules_are_timed_and_only_ours_are_made(eager):
    (done, messages), _, bad = eager
    assert done.returncode == 0, done.stderr
    assert visits(messages) == [(0, "good"), (1, "good")]
    errors = {message.id: message for message in messages if isinstance(message, Error)}
    assert set(errors) == bad
    assert "inside hwbench" in errors["foreign"].reason
    assert "inside hwbench" in errors["relative"].reason
    assert {error.stage for error in errors.values()} == {"load"}


def test_eager_operations(eager):
    _, (done, messages), _ = eager
    assert done.returncode == 0, done.stderr
    (ops,) = (message for message in messages if isinstance(message, Operations))
    assert any("conv" in name for name, _, _ in ops.ops)


def test_factories_are_called_with_their_argument():
    module, example = small_net("8")
    assert module(example).shape == (2, 5)
    assert example.shape == (2, 3, 8, 8)
