"""A finished study with everything real but the hardware: table, search, journal, store; and a way to read the page."""

import hashlib
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hwbench.latency import AdditivePredictor, LatencyTable, Role, table_path
from hwbench.latency.plan import calibration_networks
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import fingerprint
from hwbench.spaces import load_space
from hwbench.specs import Precision, Timing, Workload
from hwbench.studies.latencies import choices_digest, feasible_set
from hwbench.studies.settings import Settings
from hwbench.studies.study import Search
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import installed_target, space_table, work
from hwbench.workspace import Workspace

TARGET = installed_target()
CONDITIONS = {"device": "fake", "model": "A <b>fake</b> processor", "governor": "performance"}
CALIBRATION = 10
TRIALS = 16


def law(workload: Workload) -> float:
    """Start-up, conversion of input and output, and work, and for networks a part that no row knows."""
    seconds = work(workload, 20e9 if workload.precision is Precision.INT8 else 9e9)
    digest = hashlib.sha256(workload.key.encode()).digest()[0] / 255
    return seconds * (1 + 0.04 * (digest - 0.5) * (len(workload.blocks) > 1))


def make_table(space, precision: Precision, factor: float = 1.0) -> LatencyTable:
    return space_table(
        space, precision, lambda one: factor * law(one), calibration=CALIBRATION, conditions=fingerprint(CONDITIONS)
    )


def measured(workspace: Workspace, device: FakeDevice, workloads):
    with MeasurementStore(workspace.store) as store:
        timing = Timing(min_rounds=3, max_rounds=4)
        return Campaign(store, TARGET, CONDITIONS, device.build, device.measure, timing).run(workloads).measurements


def run_search(
    workspace: Workspace, device: FakeDevice, trials: int = TRIALS, study: str = "mine", lacking=(), factor=1.0
):
    """Rows that are slower by a factor take the place of older ones, and others that of networks beyond the budget."""
    space = load_space(workspace, "x3d-tiny")
    table = make_table(space, Precision.INT8, factor).without(lacking)
    table.write(table_path(workspace.root, TARGET, Precision.INT8))
    predictor = AdditivePredictor.fit(table, space=space.name)

    def measure(workloads):
        return measured(workspace, device, workloads)

    settings = Settings(space.name, choices_digest(space), TARGET.key, "int8", 4.2, 8)
    feasible = feasible_set(space, predictor, settings)
    search = Search(workspace, study, settings, feasible, predictor.calibration.spread, measure, replaces=factor != 1)
    return search.run(trials, 4)


@pytest.fixture(scope="session")
def studied(tmp_path_factory) -> Path:
    """A workspace with the finished study ``mine`` and an int8 table; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("report")
    run_search(Workspace.create(folder / "work"), FakeDevice(folder / "device", law=law))
    return folder / "work"


@pytest.fixture
def workspace(studied, tmp_path) -> Workspace:
    return Workspace(shutil.copytree(studied, tmp_path / "work"))


@pytest.fixture
def search_again(workspace, tmp_path):
    """Goes on with the study ``mine`` by another table: without some rows, or with slower ones."""

    def again(lacking=(), **changes):
        return run_search(workspace, FakeDevice(tmp_path / "device", law=law), lacking=lacking, **changes)

    return again


@pytest.fixture
def fp32_table(workspace) -> Path:
    path = table_path(workspace.root, TARGET, Precision.FP32)
    make_table(load_space(workspace, "x3d-tiny"), Precision.FP32).write(path)
    return path


@pytest.fixture
def int8_table(workspace) -> Path:
    return table_path(workspace.root, TARGET, Precision.INT8)


@pytest.fixture
def measured_of_another_space(workspace, int8_table, tmp_path):
    """Networks with other widths are in the store, and their blocks in the same table."""

    def add(count: int, width: str) -> None:
        file = workspace.root / "search_spaces" / "x3d-tiny.toml"
        text = file.read_text().replace('name = "x3d-tiny"', 'name = "other"').replace("width = 32", width)
        file.with_name("other.toml").write_text(text)
        other, table = load_space(workspace, "other"), LatencyTable.read(int8_table)
        drawn = [network.workload(Precision.INT8) for network in calibration_networks(other, 40, 7, 8)]
        new = [workload for workload in drawn if workload not in table][:count]
        assert len(new) == count
        measured(workspace, FakeDevice(tmp_path / "device", law=law), new)
        more = [row for row in make_table(other, Precision.INT8) if row.role is not Role.NETWORK]
        rows = [*table, *(row for row in more if row.workload not in table)]
        LatencyTable(table.target, table.precision, rows).write(int8_table)

    return add


@pytest.fixture
def stored(workspace):
    """``result.json`` of the study, to look at and to change."""
    path = workspace.studies / "mine" / "result.json"

    def change(edit) -> dict:
        values = json.loads(path.read_text())
        edit(values)
        path.write_text(json.dumps(values))
        return values

    return change


class Page(HTMLParser):
    """What a browser would see: elements, the text of the page, and the JSON of the figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.raw: dict[str, str] = {}
        self.commands: list[str] = []
        self.codes: list[str] = []
        self._open: list[str] = []
        self._raw = ""
        self.feed(text)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def figure(self, name: str) -> dict:
        return json.loads(self.raw[f"{name}-data"])

    def trace(self, figure: str, name: str) -> dict:
        (found,) = [t for t in self.figure(figure)["data"] if t.get("name") == name and t.get("showlegend", True)]
        return found

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag in ("script", "style"):
            self._raw = attributes.get("id") or f"{tag}{len(self.raw)}"
        if tag not in ("meta", "wbr"):
            self._open.append(tag)
        if tag == "pre":
            self.commands.append("")
        if tag == "code":
            self.codes.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag not in ("span", "code"):
            self.words.append(" ")

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self.raw[self._raw] = self.raw.get(self._raw, "") + data
        else:
            self.words.append(data)
        if "pre" in self._open:
            self.commands[-1] += data
        if "code" in self._open:
            self.codes[-1] += data


@pytest.fixture
def parse():
    return Page


@pytest.fixture
def make_export(tmp_path):
    """Writes a folder as ``hwbench export`` does."""

    def make(precision: str = "int8", content: bytes = b"a model", *, name: str = "", **values) -> Path:
        folder = tmp_path / (name or f"exported-{precision}")
        folder.mkdir()
        (folder / "model.pte").write_bytes(content)
        sha256 = hashlib.sha256(b"a model").hexdigest()
        manifest = {"sha256": sha256, "precision": precision, "top1_before": 0.875, "top1_after": 0.85} | values
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make
