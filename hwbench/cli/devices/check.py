"""``hwbench devices check``: step by step what is missing or wrong on a device, and the command that mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli.devices import virtual
from hwbench.cli.devices.group import app
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceBusy, DeviceError, DeviceLost, DeviceUnreachable, HwbenchError
from hwbench.printable import printable

if TYPE_CHECKING:
    from hwbench.devices import Device, DeviceState, Probe, Transport
    from hwbench.devices.preflight import Finding
    from hwbench.specs import Repeatability, Timing
    from hwbench.workspace import Workspace

OK, WARNING, FAILED = "ok", "warning", "failed"
ELSEWHERE = (
    'name another folder in its device.toml: work_dir = "~/hwbench"; on Android: work_dir = "/data/local/tmp/hwbench"'
)
# Pairs of sessions of the A/A test: about half a minute on a phone.
PAIRS = 8


@dataclass(frozen=True)
class Step:
    """One thing that was looked at: ``state`` is ok, warning or failed; ``advice`` mends it."""

    name: str
    state: str
    found: str
    advice: str = ""


@app.command()
def check(
    name: Name,
    pairs: Annotated[int, typer.Option(min=2, help="Pairs of sessions of the A/A test.")] = PAIRS,
    repeat: Annotated[bool, typer.Option("--aa/--no-aa", help="Run the A/A test.")] = True,
    as_json: Json = False,
) -> None:
    """Check a device step by step and say what mends it, then measure one model as if it were two (A/A test).

    What differs in the A/A test is the error of measuring on this device. Exit status 3 when something is wrong that
    keeps the device from being measured.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    checked = Check(workspace, load_device(workspace, name), pairs if repeat else 0)
    steps = []
    for step in checked.steps():
        steps.append(step)
        line = f"{step.state:8} {step.name:12} {printable(step.found)}"
        say(line) if as_json else print(line, flush=True)
        if step.advice:
            say(f"{step.name}: {step.advice}")
    wrong = [step for step in steps if step.state == FAILED]
    if as_json:
        from hwbench.cli.tables import aa_values

        aa = None if checked.aa is None else aa_values(checked.aa)
        emit({"device": name, "ok": not wrong, "steps": [asdict(step) for step in steps], "aa": aa}, as_json=True)
    if wrong:
        raise typer.Exit(DeviceError.exit_status)
    say(f"next: hwbench profile --device {name}")


def _timing(device: Device) -> Timing:
    """Of a session. Under emulation a run takes a hundred times as long, and its time means nothing: one does."""
    from hwbench.specs import Timing

    if device.emulated:
        return Timing(warmup_s=0.0, min_samples=1, min_session_s=0.0, max_session_s=0.1)
    return Timing()


@dataclass
class Check:
    """Looks at a device; ``aa`` is what the A/A test found, None where it did not come to it.

    Args:
        workspace: Holds the cache.
        device: What to look at.
        pairs: Of the A/A test; 0: none.
    """

    workspace: Workspace
    device: Device
    pairs: int
    aa: Repeatability | None = None
    _failed: bool = field(default=False, init=False)

    def steps(self) -> Iterator[Step]:
        """The steps in order, each when it is done; they end after one without which the others mean nothing."""
        try:
            for step in self._before():
                self._failed |= step.state == FAILED
                yield step
            if self.pairs and not self._failed:
                yield self._aa()
        except HwbenchError as error:
            kinds = {DeviceBusy: "free", DeviceLost: "connection", DeviceUnreachable: "reachable"}
            place = next((name for kind, name in kinds.items() if isinstance(error, kind)), "device")
            yield Step(place, FAILED, str(error), virtual.advice(self.device))

    def _before(self) -> Iterator[Step]:
        from hwbench.devices import occupied, read_state
        from hwbench.devices.preflight import lasting, passing, read_busy

        with self.device.transport(say) as transport:
            yield Step("reachable", OK, transport.identity)
            with occupied(transport, say) as probe:
                yield Step("shell", OK, f"{probe.model}, {probe.kernel}")
                yield self._same(probe)
                yield self._machine(probe)
                yield self._work_dir(transport)
                yield self._processors(probe)
                state = read_state(transport, self.device.work_dir)
                yield self._clocks(probe, state)
                found = [*lasting(self.device, probe), *passing(self.device, probe, state, read_busy(transport))]
                yield from (self._finding(one) for one in found if one.name != "ABI")
                if not self._failed:
                    yield self._runner(transport, probe)

    def _finding(self, one: Finding) -> Step:
        from hwbench.devices.preflight import Level

        state = {Level.OK: OK, Level.WARNING: WARNING, Level.REFUSE: FAILED}[one.level]
        return Step(one.name, state, one.sentence, one.command)

    def _aa(self) -> Step:
        from hwbench.measure.repeatability import check_repeatability

        try:
            self.aa = check_repeatability(
                self.device, cache_dir=self.workspace.cache, pairs=self.pairs, timing=_timing(self.device), report=say
            )
        except DeviceError:
            raise
        except HwbenchError as error:
            return Step("A/A test", FAILED, str(error))
        advice = "others use it, or its clocks move; see the warnings above, and run the check again"
        return Step("A/A test", OK if self.aa.ok else WARNING, str(self.aa), "" if self.aa.ok else advice)

    def _same(self, probe: Probe) -> Step:
        try:
            self.device.recognise(probe)
        except DeviceError as error:
            return Step("fingerprint", FAILED, str(error), f"hwbench devices add {self.device.name} --force")
        if not self.device.fingerprint:
            advice = f"so that another one under this name is noticed: hwbench devices add {self.device.name} --force"
            return Step("fingerprint", WARNING, f"{probe.fingerprint}, not in its device.toml", advice)
        return Step("fingerprint", OK, probe.fingerprint)

    def _machine(self, probe: Probe) -> Step:
        from hwbench.measure.board import machine_of

        try:
            return Step("ABI", OK, f"{probe.abi}, runs programs for {machine_of(probe)}")
        except DeviceError as error:
            return Step("ABI", FAILED, str(error))

    def _work_dir(self, transport: Transport) -> Step:
        from hwbench.devices.workplace import work_dir_fault
        from hwbench.specs import LOCAL

        local = self.device.transport_name == LOCAL
        folder = os.path.dirname(transport.temporary("x")) if local else self.device.work_dir
        fault = work_dir_fault(transport)
        if not fault:
            return Step("work_dir", OK, f"{folder}: programs start there")
        advice = "make room for it, or name another one: TMPDIR=FOLDER hwbench ..." if local else ELSEWHERE
        return Step("work_dir", FAILED, f"{folder}: {fault}", advice)

    def _processors(self, probe: Probe) -> Step:
        try:
            cpus = self.device.pinned(self.device.threads, probe)
        except HwbenchError as error:
            return Step("processors", FAILED, str(error), f"hwbench devices add {self.device.name} --force")
        count = f"{len(probe.allowed)} of {len(probe.cpus)} usable"
        return Step("processors", OK, f"{count}; {self.device.threads} thread(s) on {', '.join(map(str, cpus))}")

    def _clocks(self, probe: Probe, state: DeviceState) -> Step:
        """Whether the processors that are measured on may run as fast as they can."""
        if not state.clocks_khz:
            advice = "drift is found by a reference model all the same"
            return Step("clocks", WARNING, "cannot be read on this device", advice)
        highest = {cpu.index: cpu.max_khz for cpu in probe.cpus}
        limits = state.clock_limits_khz or {}
        capped = [cpu for cpu in self.device.cpus or probe.allowed if limits.get(cpu, (0, 0))[1] < highest.get(cpu, 0)]
        governors = ", ".join(sorted(set((state.governors or {}).values()))) or "unknown"
        if not capped or not limits:
            return Step("clocks", OK, f"governor {governors}")
        clocks = ", ".join(f"{cpu} below {highest[cpu] / 1e6:.2f} GHz" for cpu in capped)
        return Step("clocks", WARNING, f"held down: {clocks}", "let it cool down, switch its battery saver off")

    def _runner(self, transport: Transport, probe: Probe) -> Step:
        from hwbench.measure.device_runner import RUNTIME, install_runner

        try:
            installed = install_runner(
                self.device, transport, probe, RUNTIME, cache_dir=self.workspace.cache, report=say
            )
        except HwbenchError as error:
            return Step("runner", FAILED, str(error), f"hwbench devices prepare {self.device.name}")
        found = f"{installed.runner.kind} in {installed.folder}"
        return Step("runner", WARNING if installed.note else OK, found, installed.note)
