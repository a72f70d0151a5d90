"""A workspace whose device has a known law, and a listener that keeps what it hears."""

import json
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from hwbench.api import campaigns
from hwbench.cli.main import main
from hwbench.measure.campaign import Campaign
from hwbench.specs import Outcome, Target, Timing
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import installed_target, work
from hwbench.workspace import Workspace

TARGET = installed_target()
CONDITIONS = {"device": "fake", "kernel": "6.1"}


def fake_device(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeDevice:
    """Stands in for every device: the rest is real."""
    device = FakeDevice(folder, law=work, noise=1e-4)
    device.places, device.version, device.conditions = [], "", CONDITIONS

    @contextmanager
    def place(store, workspace, place, *, threads=None, retry=False, **options):
        device.places.append(place)
        store.clock(device.conditions)  # as the real one does, whose sessions refer to it
        target: Target = replace(TARGET, device=place.name, threads=threads or TARGET.threads)
        yield Campaign(
            store,
            target,
            device.conditions,
            device.build,
            device.measure,
            Timing(min_rounds=3, max_rounds=3),
            build_key=lambda workload: device.version,
            retry=[one for one in Outcome if one is not Outcome.OK] if retry else [Outcome.LOST],
        )

    monkeypatch.setattr(campaigns, "place_campaign", place)
    return device


def as_json(monkeypatch: pytest.MonkeyPatch, workspace: Workspace, *arguments: str) -> dict[str, object]:
    """What a command line prints with ``--json`` in a workspace."""
    monkeypatch.chdir(workspace.root)
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()), pytest.raises(SystemExit) as end:
        main([*arguments, "--json"])
    assert not end.value.code
    return dict(json.loads(out.getvalue()))
