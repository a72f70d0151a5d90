"""The runner of a lab device: made here, carried over ssh and adb, and computing there what it computes here."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwbench.devices import load_device, probe_device
from hwbench.measure.bench import Bench
from hwbench.measure.builder import BuildFailure, build_all
from hwbench.measure.prepare import PROBES, prepare_device
from hwbench.measure.runner import measure_sessions
from hwbench.runtimes.capabilities import NATIVE, NATIVE_LOADER
from hwbench.specs import Artifact, Session, Timing
from hwbench.testing import lab
from hwbench.workspace import Workspace

QUICK = Timing(warmup_s=0.001, min_samples=2, min_session_s=0.001, max_session_s=0.01, timeout_s=60)


@pytest.fixture(scope="module")
def artifacts(laboratory: None, runner_cache: Path) -> list[Artifact]:
    found = []
    for built in build_all(PROBES, "executorch", runner_cache, processes=1):
        assert not isinstance(built, BuildFailure), built.reason
        found.append(built)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("board", marks=pytest.mark.long), "phone"])
def test_a_device_computes_what_this_machine_computes(
    kind: str, request: pytest.FixtureRequest, artifacts: list[Artifact], runner_cache: Path, tmp_path: Path
) -> None:
    made: lab.LabDevice = request.getfixturevalue(kind)
    workspace = Workspace.create(tmp_path / "bench")
    made.write_device_file(workspace.root, kind)
    device = load_device(workspace, kind)
    with device.transport() as transport:
        probe = probe_device(transport)
        prepared = prepare_device(device, transport, probe, cache_dir=runner_cache)
        assert {parity.precision for parity in prepared.parities} == {one.precision for one in PROBES}
        assert all(parity.agrees and parity.allowed > 0 for parity in prepared.parities)
        installed = prepared.installed
        assert installed.runner.kind == (NATIVE if kind == "board" else NATIVE_LOADER)
        assert ("experimental" in installed.note) == (kind == "phone")
        assert installed.folder.startswith(made.work_dir)
        bench = Bench(transport, installed.runner, 1, device.pinned(1, probe))
        (session,) = timed(artifacts[:1], bench)
        # From the /sys of the device, which is not that of this machine.
        assert session.temperature_celsius > 0
        assert session.clock_hz > 0


def timed(artifacts: list[Artifact], bench: Bench) -> list[Session]:
    found: list[Session] = []
    failures = measure_sessions(
        artifacts, rounds=1, seed=0, on_session=lambda _, session: found.append(session), bench=bench, timing=QUICK
    )
    assert failures == []
    return found
