"""``hwbench devices check``: step by step what is missing or wrong on a device, and the command that mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from hwbench.cli.devices.group import app
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceError, HwbenchError
from hwbench.printable import printable
from hwbench.units import format_bytes

if TYPE_CHECKING:
    from hwbench.devices import Device, DeviceState, Probe, Transport
    from hwbench.workspace import Workspace

OK, WARNING, FAILED = "ok", "warning", "failed"
# The runner with its libraries is some 20 MB, the files of a space some 100 MB.
ENOUGH_BYTES, NEEDED_BYTES = 500 << 20, 50 << 20
ELSEWHERE = (
    'name another folder in its device.toml: work_dir = "~/hwbench"; on Android: work_dir = "/data/local/tmp/hwbench"'
)


@dataclass(frozen=True)
class Step:
    """One thing that was looked at: ``state`` is ok, warning or failed; ``advice`` mends it."""

    name: str
    state: str
    found: str
    advice: str = ""


@app.command()
def check(name: Name, as_json: Json = False) -> None:
    """Check a device step by step and say what mends it: from reaching it to a test of two equal models (A/A).

    Exit status 3 when something is wrong that keeps it from being measured.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    device = load_device(workspace, name)
    steps = []
    for step in check_device(workspace, device):
        steps.append(step)
        line = f"{step.state:8} {step.name:12} {printable(step.found)}"
        say(line) if as_json else print(line, flush=True)
        if step.advice:
            say(f"{step.name}: {step.advice}")
    wrong = [step for step in steps if step.state == FAILED]
    if as_json:
        emit({"device": name, "ok": not wrong, "steps": [asdict(step) for step in steps]}, as_json=True)
    if wrong:
        raise typer.Exit(DeviceError.exit_status)
    say(f"next: hwbench profile --device {name}")


def check_device(workspace: Workspace, device: Device) -> Iterator[Step]:
    """The steps in order, each when it is done; after one without which the others mean nothing there are no more."""
    try:
        yield from _Check(workspace, device).steps()
    except HwbenchError as error:
        yield Step(_place(error), FAILED, str(error))


@dataclass
class _Check:
    workspace: Workspace
    device: Device

    def steps(self) -> Iterator[Step]:
        from hwbench.devices import leased, probe_device, read_state

        with self.device.transport() as transport:
            yield Step("reachable", OK, transport.identity)
            with leased(transport.identity):
                probe = probe_device(transport)
                yield Step("shell", OK, f"{probe.model}, {probe.kernel}")
                yield self._same(probe)
                machine = self._machine(probe)
                yield machine
                yield self._work_dir(transport)
                state = read_state(transport, self.device.work_dir)
                yield self._space(state)
                yield self._processors(probe)
                yield self._clocks(probe, state)
                if machine.state is OK:
                    yield self._runner(transport, probe)

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

    def _space(self, state: DeviceState) -> Step:
        if state.free_bytes is None:
            return Step("free space", WARNING, "not told by the device")
        found = f"{format_bytes(state.free_bytes)} in {self.device.work_dir}"
        if state.free_bytes >= ENOUGH_BYTES:
            return Step("free space", OK, found)
        advice = f"free {format_bytes(ENOUGH_BYTES)}: the runner and the files of a space go there"
        return Step("free space", WARNING if state.free_bytes >= NEEDED_BYTES else FAILED, found, advice)

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


def _place(error: HwbenchError) -> str:
    """The name of the step that an error ended."""
    from hwbench.errors import DeviceBusy, DeviceLost, DeviceUnreachable

    kinds = {DeviceBusy: "free", DeviceLost: "connection", DeviceUnreachable: "reachable"}
    return next((name for kind, name in kinds.items() if isinstance(error, kind)), "device")
