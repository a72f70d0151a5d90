"""``hwbench.check_device``: step by step what is missing or wrong on a device, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hwbench.api.devices.steps import FAILED, OK, WARNING, CheckStep
from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import changed, option, request
from hwbench.errors import DeviceBusy, DeviceError, DeviceLost, DeviceUnreachable, HwbenchError, InvalidValue

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hwbench.devices import Device, DeviceState, Probe, Transport
    from hwbench.devices.preflight import Finding
    from hwbench.specs import Repeatability, Timing
    from hwbench.workspace import Workspace

ELSEWHERE = (
    'name another folder in its device.toml: work_dir = "~/hwbench"; on Android: work_dir = "/data/local/tmp/hwbench"'
)
# Pairs of sessions of the A/A test: about half a minute on a phone.
PAIRS = 8


@request
class CheckDeviceRequest:
    """Check a device step by step and say what mends it, then measure one model as if it were two (A/A test).

    What differs in the A/A test is the error of measuring on this device. Exit status 3 when something is wrong that
    keeps the device from being measured.
    """

    name: str = option(argument=True, metavar="NAME", names="device", help="Device: a folder of profiles/.")
    pairs: int = option(default=PAIRS, min=2, help="Pairs of sessions of the A/A test.")
    repeat: bool = option(default=True, flags=("--aa/--no-aa",), help="Run the A/A test.")

    def validate(self) -> None:
        """Raises InvalidValue where pairs of an A/A test are asked for, and no test."""
        if not self.repeat and changed(self, "pairs"):
            raise InvalidValue("--no-aa runs no A/A test; leave --pairs out")


@dataclass(frozen=True)
class CheckDeviceResult:
    """The steps in order, and what the A/A test found; ``aa`` is None where it did not come to the test."""

    device: str
    steps: tuple[CheckStep, ...]
    aa: Repeatability | None

    @property
    def ok(self) -> bool:
        """Whether the device can be measured."""
        return all(step.state != FAILED for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices check --json`` prints."""
        return {
            "device": self.device,
            "ok": self.ok,
            "steps": [asdict(step) for step in self.steps],
            "aa": None if self.aa is None else self.aa.as_json(),
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a step."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["steps"])


def check_device(
    request: CheckDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> CheckDeviceResult:
    """Looks at a device step by step; what is wrong with it is a step of the result and no exception.

    The listener hears each step when it is done (``Listener.checked``).

    Raises:
        UnknownName: No such device.
        InvalidFile: Its file does not validate.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    pairs = request.pairs if request.repeat else 0
    check = Check(workspace, load_device(workspace, request.name), pairs, listener)
    steps = []
    for step in check.steps():
        listener.checked(step)
        steps.append(step)
    return CheckDeviceResult(request.name, tuple(steps), check.aa)


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
        listener: Hears what takes long.
    """

    workspace: Workspace
    device: Device
    pairs: int
    listener: Listener = SILENT
    aa: Repeatability | None = None
    _failed: bool = field(default=False, init=False)

    def steps(self) -> Iterator[CheckStep]:
        """The steps in order, each when it is done; they end after one without which the others mean nothing."""
        try:
            for step in self._before():
                self._failed |= step.state == FAILED
                yield step
            if self.pairs and not self._failed:
                yield self._aa()
        except HwbenchError as error:
            from hwbench.devices import virtual

            kinds = {DeviceBusy: "free", DeviceLost: "connection", DeviceUnreachable: "reachable"}
            place = next((name for kind, name in kinds.items() if isinstance(error, kind)), "device")
            yield CheckStep(place, FAILED, str(error), virtual.advice(self.device))

    def _before(self) -> Iterator[CheckStep]:
        from hwbench.devices import occupied, read_state
        from hwbench.devices.preflight import lasting, passing, read_busy

        with self.device.transport(self.listener.say) as transport:
            yield CheckStep("reachable", OK, transport.identity)
            with occupied(transport, self.listener.say) as probe:
                yield CheckStep("shell", OK, f"{probe.model}, {probe.kernel}")
                yield self._same(probe)
                yield self._machine(probe)
                yield self._work_dir(transport)
                yield self._processors(probe)
                state = read_state(transport, self.device.files_dir)
                yield self._clocks(probe, state)
                found = [*lasting(self.device, probe), *passing(self.device, probe, state, read_busy(transport))]
                yield from (self._finding(one) for one in found if one.name != "ABI")
                if not self._failed:
                    yield self._runner(transport, probe)

    def _finding(self, one: Finding) -> CheckStep:
        from hwbench.devices.preflight import Level

        state = {Level.OK: OK, Level.WARNING: WARNING, Level.REFUSE: FAILED}[one.level]
        return CheckStep(one.name, state, one.sentence, one.command)

    def _aa(self) -> CheckStep:
        from hwbench.measure.repeatability import check_repeatability

        try:
            self.aa = check_repeatability(
                self.device,
                cache_dir=self.workspace.cache,
                pairs=self.pairs,
                timing=_timing(self.device),
                report=self.listener.say,
            )
        except DeviceError:
            raise
        except HwbenchError as error:
            return CheckStep("A/A test", FAILED, str(error))
        advice = "others use it, or its clocks move; see the warnings above, and run the check again"
        return CheckStep("A/A test", OK if self.aa.ok else WARNING, str(self.aa), "" if self.aa.ok else advice)

    def _same(self, probe: Probe) -> CheckStep:
        try:
            self.device.recognise(probe)
        except DeviceError as error:
            return CheckStep("fingerprint", FAILED, str(error), self._mend(probe))
        if not self.device.fingerprint:
            advice = f"so that another one under this name is noticed: hwbench devices add {self.device.name} --force"
            return CheckStep("fingerprint", WARNING, f"{probe.fingerprint}, not in its device.toml", advice)
        return CheckStep("fingerprint", OK, probe.fingerprint)

    def _mend(self, probe: Probe) -> str:
        off = "switch on the processors that are offline, or: " if probe.offline else ""
        then = self.device.turbo_then(probe)
        turbo = f"switch turbo {then} if it was {then} when the device was added, or: " if then else ""
        return f"{off}{turbo}hwbench devices add {self.device.name} --force"

    def _machine(self, probe: Probe) -> CheckStep:
        from hwbench.measure.remote_toolchain import machine_of

        try:
            return CheckStep("ABI", OK, f"{probe.abi}, runs programs for {machine_of(probe)}")
        except DeviceError as error:
            return CheckStep("ABI", FAILED, str(error))

    def _work_dir(self, transport: Transport) -> CheckStep:
        from hwbench.devices.workplace import work_dir_fault
        from hwbench.ownership import make_closed_folder
        from hwbench.specs import LOCAL
        from hwbench.workspace import temporary_beside, writing

        local, folder = self.device.transport_name == LOCAL, self.device.files_dir
        if local:  # nothing is copied: what was built is run where it lies
            with writing(self.workspace.cache):
                make_closed_folder(self.workspace.cache)
        fault = work_dir_fault(transport, str(temporary_beside(self.workspace.cache / "start")) if local else "")
        if not fault:
            return CheckStep("work_dir", OK, f"{folder}: programs start there")
        advice = "mend that, or make a workspace on another disk: hwbench init DIR" if local else ELSEWHERE
        return CheckStep("work_dir", FAILED, f"{folder}: {fault}", advice)

    def _processors(self, probe: Probe) -> CheckStep:
        try:
            cpus = self.device.pinned(self.device.threads, probe)
        except HwbenchError as error:
            return CheckStep("processors", FAILED, str(error), self._mend(probe))
        count = f"{len(probe.allowed)} of {len(probe.cpus)} usable"
        return CheckStep("processors", OK, f"{count}; {self.device.threads} thread(s) on {', '.join(map(str, cpus))}")

    def _clocks(self, probe: Probe, state: DeviceState) -> CheckStep:
        """Whether the processors that are measured on may run as fast as they can."""
        if not state.clocks_khz:
            advice = "drift is found by a reference model all the same"
            return CheckStep("clocks", WARNING, "cannot be read on this device", advice)
        highest = {cpu.index: cpu.max_khz for cpu in probe.cpus}
        limits = state.clock_limits_khz or {}
        capped = [cpu for cpu in self.device.cpus or probe.allowed if limits.get(cpu, (0, 0))[1] < highest.get(cpu, 0)]
        governors = ", ".join(sorted(set((state.governors or {}).values()))) or "unknown"
        if not capped or not limits:
            return CheckStep("clocks", OK, f"governor {governors}")
        clocks = ", ".join(f"{cpu} below {highest[cpu] / 1e6:.2f} GHz" for cpu in capped)
        return CheckStep("clocks", WARNING, f"held down: {clocks}", "let it cool down, switch its battery saver off")

    def _runner(self, transport: Transport, probe: Probe) -> CheckStep:
        from hwbench.measure.device_runner import RUNTIME, install_runner

        try:
            installed = install_runner(
                self.device, transport, probe, RUNTIME, cache_dir=self.workspace.cache, report=self.listener.say
            )
        except (DeviceLost, DeviceUnreachable):
            raise
        except HwbenchError as error:
            return CheckStep("runner", FAILED, str(error), f"hwbench devices prepare {self.device.name}")
        found = f"{installed.runner.kind} in {installed.folder}"
        return CheckStep("runner", WARNING if installed.note else OK, found, installed.note)
