"""Everything that a device can say, each with what is done with it: computed with, shown, stored."""

import csv
import functools
import itertools
import json
import tempfile
from pathlib import Path
from unittest import mock

from hwbench.cli.output import text as shown
from hwbench.devices import Conditions, Device, probe, state
from hwbench.devices.adb import choose
from hwbench.devices.adb_channel import Marks
from hwbench.devices.adb_program import is_loopback, parse_list, words
from hwbench.devices.base import Address, CommandResult
from hwbench.devices.control import controlled, put_back_left_over
from hwbench.devices.depot import Depot
from hwbench.devices.description import big_cores, describe, describe_state
from hwbench.devices.knobs import knobs
from hwbench.devices.link import Chunk, Stream
from hwbench.devices.preflight import examine, heat, parse_busy, passing
from hwbench.devices.supervisor import Order, Supervised
from hwbench.errors import HwbenchError, WorkspaceError
from hwbench.latency import LatencyRow, LatencyTable
from hwbench.measure import energy
from hwbench.measure.artifact_check import profile_ops
from hwbench.measure.bench import Bench
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import Drift, Pauses
from hwbench.measure.remote_toolchain import ask_board, ask_python, machine_of
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.measure.visits import session_of
from hwbench.reports.markup import element
from hwbench.runtimes.capabilities import EXECUTOR_RUNNER
from hwbench.runtimes.protocol import MalformedLine, Visit, parse_line
from hwbench.runtimes.pte_model import PteLayout, TensorLayout
from hwbench.runtimes.runners import Runner, read_check
from hwbench.specs import Precision, Target, Timing
from hwbench.testing import fuzz
from hwbench.testing.models import artifact

TESTS = Path(__file__).parents[1]
SMALL = TESTS / "golden" / "pte" / "small-1.5.1.pte"
RUNNERS, DEVICES = TESTS / "measure" / "recordings", TESTS / "devices" / "recordings"
TIMING = Timing(warmup_s=0.001, min_samples=3, min_session_s=0.001, max_session_s=0.01, min_rounds=2, max_rounds=2)
ARTIFACTS = [artifact(SMALL, number) for number in range(3)]
TARGET = Target("fuzzed", "executorch", "1.5.1")
SUPPLY = (
    "== rapl intel-rapl:0\nenergy_uj: 1500000\nmax_energy_range_uj: 262143328850\n"
    "== battery\ncurrent_now: -450000\nvoltage_now: 4000000\nstatus: Discharging\n"
)
PROBE = probe.parse((DEVICES / "s9.probe.txt").read_text())
PI = probe.parse((DEVICES / "pi5.probe.txt").read_text())
DEVICE = Device("fuzzed", "adb")
MEMORY = Path(":memory:")


class Answering:
    """A device whose every answer is one text."""

    identity = "adb:fuzzed"
    over_usb = True

    def __init__(self, text: str, status: int = 0, turns: int = 2) -> None:
        self.text = text
        self.status = status
        self.turns = turns

    def run(self, argv, *, timeout_s, env=None, stdin=""):
        return CommandResult(self.status, self.text, self.text[-200:] if self.status else "")

    def spawn(self, argv, *, env=None):
        self.turns -= 1
        return Talk(self.text if self.turns >= 0 else "", self.status)

    def push(self, source: Path) -> str:
        if not source.is_file():
            raise WorkspaceError(f"cannot read {source}")
        return str(source)

    def pull(self, source: str, target: Path) -> None:
        target.write_bytes(self.text.encode("utf-8", "surrogatepass"))

    def temporary(self, name: str) -> str:
        return f"/tmp/{name}"


class Talk:
    """A process that says its lines and ends."""

    def __init__(self, text: str, status: int) -> None:
        self._lines = iter(text.split("\n"))
        self._status = status

    def read_line(self, timeout_s):
        return next(self._lines, None)

    def kill(self):
        self._lines = iter(())

    def wait(self, timeout_s):
        return CommandResult(self._status, "", "it ended")


@functools.cache
def kept_store() -> MeasurementStore:
    """One store for what is many: rows and runs pile up in it."""
    return MeasurementStore(MEMORY)


@functools.cache
def kept_row() -> int:
    return kept_store().begin(ARTIFACTS[0].workload, TARGET, TIMING, {"device": "fuzzed"})


def one_line(line: str) -> None:
    """A message that reads can be computed with and stored."""
    message = parse_line(line)
    repr(message)
    if isinstance(message, Visit):
        kept_store().add_session(kept_row(), session_of(message, None, 1.0))


def campaign(text: str, *, sentinel: bool, kind: str = "native", status: int = 0) -> None:
    """A campaign on a runner that says this, and its table in files and on the page."""
    with MeasurementStore(MEMORY) as store:
        bench = Bench(Answering(text, status), Runner(kind, ("runner",)), 1, (0,), probe=True)

        def measure(artifacts, /, **more):
            return measure_sessions(
                artifacts,
                bench=bench,
                timing=TIMING,
                sentinel=SMALL if sentinel else None,
                drift=Drift(),
                pauses=Pauses(),
                wait=lambda seconds: None,
                **more,
            )

        run = Campaign(store, TARGET, {"device": "fuzzed"}, lambda workloads: iter(ARTIFACTS), measure, timing=TIMING)
        result = run.run([one.workload for one in ARTIFACTS])
        rows = [LatencyRow.of(one, "2026-01-31", run.fingerprint) for one in result.measurements]
        table = LatencyTable(TARGET, Precision.FP32, rows)
        show(table)
        for row in rows:
            element("p", row.reason, title=row.reason).encode()


def executor(text: str) -> None:
    """The same with the user's executor_runner; the model is not read, which takes a second."""
    layout = PteLayout((TensorLayout((1, 3, 4, 4), (0, 1, 2, 3)),), (TensorLayout((1, 2), (0, 1)),))
    with mock.patch("hwbench.measure.executor_runner.pte_layout", return_value=layout):
        campaign(text, sentinel=True, kind=EXECUTOR_RUNNER)


def show(table: LatencyTable) -> None:
    """What is written reads, and is written the same again."""
    text = table.text
    assert not any(character in text for character in "\x1b\0\r\t\u202e")
    assert not any(cells[-1].startswith(("=", "+", "-", "@")) for cells in csv.reader(text.splitlines()[2:]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        path.write_text(text, encoding="utf-8")
        again = LatencyTable.read(path)
    assert again.text == text


def probed(text: str) -> None:
    found = probe.parse(text)
    kept_store().begin(ARTIFACTS[1].workload, TARGET, TIMING, probe.conditions(found, (0, 1), "native/4"))
    for name, value in describe(found) if found.cpus else []:
        element("td", f"{name}{value}").encode()
    assert found.clusters or not found.cpus
    DEVICE.recognise(found)
    for action in (lambda: found.fastest(1), lambda: big_cores(found), lambda: machine_of(found)):
        try:
            action()
        except HwbenchError as error:
            str(error).encode()


def stated(text: str) -> None:
    found = state.parse(text)
    run = kept_store().begin_run(TARGET, {"device": "fuzzed"}, found.as_json())
    kept_store().end_run(run, found.as_json())
    for name, value in describe_state(found):
        shown(f"{name}{value}").encode()
    for finding in passing(DEVICE, PROBE, found):
        str(finding).encode()
    heat(found)


def supplied(text: str) -> None:
    found = energy.parse(text)
    json.dumps(vars(energy.power([(0.0, found), (5.0, found)])), allow_nan=False)


def busy(text: str) -> None:
    found = parse_busy(text)
    for finding in passing(DEVICE, PI, state.DeviceState(load=1.0), found):
        str(finding).encode()


def attached(text: str) -> None:
    found = parse_list(text)
    for one in found:
        f"{one}{one.mend}{one.usable_serial}{is_loopback(one.serial)}".encode()
    words(text).encode()
    str(choose(found, Address("fuzzed"), None, "")).encode()


def turned(text: str) -> None:
    for name, kind in itertools.product(knobs.names(), (PROBE, PI)):
        knob, device = knobs.get(name)(), Answering(text)
        for action in (
            lambda knob=knob, kind=kind, device=device: knob.exists(kind, device),
            lambda knob=knob, kind=kind, device=device: knob.available(kind, device),
            lambda knob=knob, device=device: knob.show(device),
            lambda knob=knob, kind=kind, device=device: knob.set(device, knob.wanted(kind, device)),
        ):
            try:
                str(action()).encode()
            except HwbenchError as error:
                str(error).encode()


def held(text: str) -> None:
    """The whole of holding a device still; what was turned is put back by the same answers."""
    device = Answering(text)
    with controlled(Conditions.CONTROLLED, PROBE, device) as control:
        kept_store().begin(ARTIFACTS[1].workload, TARGET, TIMING, control.row(PROBE, (0,), "native/4"))
    put_back_left_over(device)


def asked(text: str) -> None:
    device = Answering(text)
    repr(ask_python(device, "python3", ("executorch", "torch", "numpy"))).encode()
    repr(ask_board(device, "aarch64")).encode()


def profiled(text: str) -> None:
    found = profile_ops(SMALL, bench=Bench(Answering(text), Runner("native", ("runner",))), timing=TIMING)
    assert found.unaccounted_s >= 0
    "".join(one.name for one in found.operations).encode()


class Link:
    """One end of a connection at whose other end are these bytes."""

    identity = "adb:fuzzed"

    def __init__(self, text: str) -> None:
        self._lines = iter(text.encode("utf-8", "surrogatepass").splitlines(keepends=True))
        self._token = b""

    def open(self, command):
        return self

    def write(self, data):
        if data.startswith(b"token="):
            self._token = data[6:].partition(b"\n")[0].strip(b"'")

    def read(self, timeout_s):
        if (line := next(self._lines, None)) is None:
            return None
        stream = Stream.STDERR if line.startswith(b"!") else Stream.STDOUT
        return Chunk(stream, line.removeprefix(b"!").replace(b"TOKEN", self._token))

    def close(self):
        pass


def supervised(text: str) -> None:
    command = Supervised(Link(text), Order(("true",), {}, timeout_s=1))
    while not command.ended:
        command.read(1)
    assert isinstance(command.status()[0], int)


def marked(text: str) -> None:
    marks = Marks()
    data = text.replace("BEGIN", marks._begin.decode()).replace("END", marks._end.decode())
    for at in range(0, len(data), 400):
        marks.feed(data[at : at + 400].encode("utf-8", "surrogatepass"))
    marks.feed(b"")
    words(marks.talk.decode(errors="replace")).encode()


def stored_there(text: str) -> None:
    depot = Depot(Address("fuzzed", {}), "owner", Link(""), lambda *_, **__: CommandResult(0, text))
    depot._work = "/tmp/hwbench"
    try:
        depot._look("/tmp/file", 1 << 20)
    except HwbenchError as error:
        str(error).encode()
    depot._list()


SAID = r"""
== log
I 00:00:00.000441 executorch:executor_runner.cpp:624] Model loaded in 0.299860 ms.
I 00:00:00.000441 executorch:executor_runner.cpp:779] Iteration 1 of 3: 0.200001 ms
I 00:00:00.000441 executorch:executor_runner.cpp:779] Iteration 2 of 3: 0.200002 ms
I 00:00:00.000441 executorch:executor_runner.cpp:779] Iteration 3 of 3: 0.200003 ms
I 00:00:00.000441 executorch:executor_runner.cpp:789] Model executed successfully 3 time(s) in 0.200540 ms.
E 00:00:00.000441 executorch:executor_runner.cpp:473] Failed to parse model file
MORE
== clock
1794000
== zones
cpu-0 45000
battery 31.5
"""
EXECUTOR = SAID.replace("MORE", "\n".join(f"Iteration {number} of 99: 0.2 ms" for number in range(4, 30)))
BUSY = """== cores 1
cpu  100 0 50 900 10 0 1 0 0 0
cpu0 100 0 50 900 10 0 1 0 0 0
cpu1 100 0 50 900 10 0 1 0 0 0
== tasks 1
1 (init) S 0 1 1 0 -1 4194560 100 0 0 0 5 7 0 0 20 0 1 0 3 1 1
77 (a (b) c) R 1 1 1 0 -1 4194560 100 0 0 0 50 70 0 0 20 0 1 0 3 1 1
== cores 2
cpu0 150 0 60 940 10 0 1 0 0 0
cpu1 100 0 50 1000 10 0 1 0 0 0
== tasks 2
1 (init) S 0 1 1 0 -1 4194560 100 0 0 0 5 7 0 0 20 0 1 0 3 1 1
77 (a (b) c) R 1 1 1 0 -1 4194560 100 0 0 0 90 80 0 0 20 0 1 0 3 1 1
"""
LISTED = """* daemon not running; starting now at tcp:5037
List of devices attached
988a1b314c4d314a32     device usb:1-2 product:starltexx model:SM_G960F device:starlte transport_id:1
192.168.1.20:5555      offline transport_id:2
emulator-5554          unauthorized transport_id:3
0123456789             no permissions (user in plugdev group; are your udev rules wrong?); see [http://dev] usb:1-3
"""
KNOBS = """/sys/devices/system/cpu/cpufreq/policy0/scaling_governor: schedutil
/sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq: 455000
/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq: 1794000
/sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq: 1794000
/sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies: 455000 1000000 1794000
/sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors: schedutil performance
/sys/devices/system/cpu/cpufreq/boost: 1
"""
BOARD = """== loader
/lib/ld-linux-aarch64.so.1
== compilers
/usr/bin/c++
/usr/bin/g++
== programs
tar
gzip
== end
"""
MARKED = ["* daemon\nBEGIN\nhello\nEND0\n", "error: no devices\n", "BEGIN\r\nEND12\r\n"]
FRAMED = [
    "motd\nTOKEN+\n!TOKEN+\nhello\n!warning\nTOKEN-0 ended\n!TOKEN-\n",
    "!motd\n!TOKEN+\nTOKEN+\nTOKEN-143 late\n!TOKEN-\n",
]
KEPT = f"{64 * 'a'}.pte/\n{64 * 'b'}.d/\n/\n120 {64 * 'a'}.pte\n4 {64 * 'b'}.d\n"


def recorded(folder: Path, pattern: str) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob(pattern))]


def targets(folder: Path) -> list[fuzz.FuzzTarget]:
    """All of them.

    Args:
        folder: Where a check finds its output.
    """
    output = folder / "output.raw"
    output.write_bytes(bytes(40))

    def checked(text: str) -> None:
        read_check("model.pte", 0, text, "", output)

    sessions = recorded(RUNNERS, "*.sessions.txt")
    lines = sorted({line for text in recorded(RUNNERS, "*.txt") for line in text.splitlines()})
    probes, states = recorded(DEVICES, "*.probe.txt"), recorded(DEVICES, "*.state.txt")
    python = "hwbench 3.11 1.5.1 2.11.0+cpu 2.0\n"
    return [
        fuzz.FuzzTarget("runner-line", one_line, lines, (MalformedLine,)),
        fuzz.FuzzTarget("runner-campaign", functools.partial(campaign, sentinel=True), sessions),
        fuzz.FuzzTarget("runner-without-sentinel", functools.partial(campaign, sentinel=False), sessions),
        fuzz.FuzzTarget("runner-ends-badly", functools.partial(campaign, sentinel=True, status=3), sessions),
        fuzz.FuzzTarget("runner-check", checked, recorded(RUNNERS, "*.check.txt")),
        fuzz.FuzzTarget("runner-profile", profiled, recorded(RUNNERS, "*.profile.txt")),
        fuzz.FuzzTarget("executor-runner", executor, [EXECUTOR]),
        fuzz.FuzzTarget("probe", probed, probes),
        fuzz.FuzzTarget("state", stated, states),
        fuzz.FuzzTarget("energy", supplied, [SUPPLY]),
        fuzz.FuzzTarget(
            "examine", lambda text: examine(DEVICE, Answering(text)) and None, [probes[0] + states[0] + BUSY]
        ),
        fuzz.FuzzTarget("busy", busy, [BUSY]),
        fuzz.FuzzTarget("adb-devices", attached, [LISTED]),
        fuzz.FuzzTarget("knobs", turned, [KNOBS, "0\n", "mWakefulness=Asleep\n", "null\n", "Android\n"]),
        fuzz.FuzzTarget("held", held, [KNOBS, "0\n", "mWakefulness=Asleep\n", "null\n"]),
        fuzz.FuzzTarget("board", asked, [BOARD, python]),
        fuzz.FuzzTarget("supervisor", supervised, FRAMED),
        fuzz.FuzzTarget("adb-marks", marked, MARKED),
        fuzz.FuzzTarget("depot", stored_there, [KEPT, f"123 {64 * 'a'}\n"]),
    ]
