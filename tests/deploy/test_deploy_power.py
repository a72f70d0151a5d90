"""What a power cut leaves of an export."""

import json
from pathlib import Path

import pytest

from hwbench.deploy.atomic_export import settle
from hwbench.deploy.file_names import MANIFEST
from hwbench.testing.power import cut_power, python, record

EXPORTS = ("one", "two", "three")
# A first export into a new folder, and two over it, the last of another runtime; each is told when it is in its place.
PROGRAM = f"""
import json, sys
from pathlib import Path
from hwbench.deploy.file_names import MANIFEST, MODEL, model_name
from hwbench.deploy.atomic_export import place, staging
out = Path(sys.argv[1], "runs", "model")
for name in {EXPORTS}:
    model = model_name("onnx") if name == "three" else MODEL
    with staging(out) as folder:
        (folder / model).write_text(name * 3000)
        (folder / MANIFEST).write_text(json.dumps([model, name]))
        place(folder, out, model)
    print(name, flush=True)
"""


def check(folder: Path, told: tuple[str, ...]) -> None:
    out = folder / "runs" / "model"
    settle(out)  # as whoever opens an export does
    if not (out / MANIFEST).exists():
        assert not told, f"{told[-1]} is lost"
        return
    model, name = json.loads((out / MANIFEST).read_text())
    assert (out / model).read_text() == name * 3000, "a manifest with a model that is not its own"
    assert EXPORTS.index(name) + 1 >= len(told), f"{told[-1]} was in its place, {name} is there"


@pytest.mark.parametrize("points", [25, pytest.param(None, marks=pytest.mark.long)])
def test_19_23_a_power_cut_takes_no_export_that_was_told_as_done(
    tmp_path: Path, power_shim: Path, points: int | None
) -> None:
    recording = record(python("-c", PROGRAM, str(tmp_path)), tmp_path, power_shim)
    report = cut_power(recording, check, points=points, mixed=5 if points else 30)
    assert report.problems == []
    assert report.disks > 10
