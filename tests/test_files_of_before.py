"""Everything that commit afbb81b wrote opens today, and says the same numbers.

``tests/golden/afbb81b/make.py`` made the folder beside it, with ``PYTHONPATH`` set to a checkout of that commit and an
empty folder as its workspace: ``profile`` of the space in ``space.toml`` in both precisions (46 rows), a ``search`` of
six trials, a ``train`` of one epoch, and an ``export`` in both precisions. What is text is kept as it was written; the
store as a dump in SQL, with the first 24 samples of each session; the checkpoint as xz in base 64. ``expected.json``
holds what the library of that commit said about these files.
"""

import base64
import json
import lzma
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import torch

from hwbench.deploy.manifest import Manifest
from hwbench.latency import AdditivePredictor, LatencyTable
from hwbench.measure import cache
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_result, load_space, resolve
from hwbench.specs import Precision, Target, Timing, Workload
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.latencies import choices_digest, compile_predictor, feasible_set
from hwbench.studies.settings import Settings
from hwbench.studies.study import Search
from hwbench.testing.fakes import FakeDevice
from hwbench.training.checkpoint import build, load_checkpoint
from hwbench.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden" / "afbb81b"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
STUDY = json.loads((GOLDEN / "study" / "result.json").read_text())
SPACE, CLASSES = "kept", 8
PRECISIONS = ("fp32", "int8")
STATISTICS = ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace as that commit left it; what is large in it is missing."""
    workspace = Workspace.create(tmp_path / "work")
    shutil.copy(GOLDEN / "space.toml", workspace.root / "search_spaces" / f"{SPACE}.toml")
    for table in GOLDEN.glob("*.csv"):
        shutil.copy(table, workspace.root / "profiles" / "local")
    shutil.copytree(GOLDEN / "study", workspace.studies / SPACE)
    connection = sqlite3.connect(workspace.store)
    connection.executescript((GOLDEN / "measurements.sql").read_text())
    connection.close()
    checkpoint = workspace.root / "runs/kept/checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(lzma.decompress(base64.b64decode((GOLDEN / "checkpoint.base64").read_text())))
    return workspace


def table_of(workspace: Workspace, precision: str) -> LatencyTable:
    (path,) = (workspace.root / "profiles" / "local").glob(f"*.{precision}.*.csv")
    return LatencyTable.read(path)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tables_predict_the_same_to_the_last_digit(workspace, precision):
    """As they do today: predictions were recorded anew with the calibration of few networks and its intervals."""
    table, space = table_of(workspace, precision), load_space(workspace, SPACE)
    (golden,) = GOLDEN.glob(f"*.{precision}.*.csv")
    assert table.text == golden.read_text()
    predictor = AdditivePredictor.fit(table, space=SPACE)
    said = {}
    for architecture in space.architectures():
        estimate = predictor.predict(space.network(architecture, CLASSES).workload(Precision.parse(precision)))
        said[architecture.key] = {"seconds": estimate.seconds, "low_s": estimate.low_s, "high_s": estimate.high_s}
    expected = EXPECTED["predictions"][precision]
    assert said.keys() == expected.keys()
    for key, one in said.items():  # since Python 3.12 ``sum`` rounds floats only once
        assert one == pytest.approx(expected[key], rel=1e-14, abs=0)
    many = compile_predictor(space, predictor, Precision.parse(precision), CLASSES)
    seconds = many.predict_many(space.encode(space.architectures())).seconds
    assert seconds.tolist() == pytest.approx([one["seconds"] for one in said.values()], rel=1e-12)


def test_the_store_has_its_rows_and_their_statistics(workspace):
    said = []
    with MeasurementStore(workspace.store) as store:
        for target in store.targets("local"):
            for row in store.rows(target):
                one = row.measurement
                said.append(
                    {"workload": one.workload.key, "target": one.target.key, "outcome": one.outcome.value}
                    | {"sessions": len(one.sessions)}
                    | {name: getattr(one.stats, name) for name in STATISTICS}
                    | {"build": row.build, "finished_at": row.finished_at}
                )
    assert said == EXPECTED["rows"]


def test_the_store_knows_of_clocks_and_quiet_sessions_what_it_did(workspace):
    said = []
    with MeasurementStore(workspace.store) as store:
        for (digest,) in store.database.select("SELECT fingerprint FROM conditions ORDER BY 1"):
            conditions = store.conditions_of(digest)
            quiet = store.undisturbed(conditions)
            said.append(
                {"conditions": digest, "clock": store.clock(conditions)}
                | {"followed": store.clock_sensitivity(conditions)}
                | {"crowding": quiet.crowding.usual, "memory": quiet.memory.usual, "counts": store.counts()}
            )
    assert said == EXPECTED["knowledge"]


def test_no_row_of_the_store_is_missing_for_a_campaign_that_asks_again(workspace):
    with MeasurementStore(workspace.store) as store:
        (target,) = store.targets("local")
        rows = list(store.rows(target))
        builds = {row.measurement.workload: row.build for row in rows}
        one = rows[0].measurement
        asked = partial(store.missing, list(builds), target, one.timing, one.conditions)
        assert asked(build=builds.__getitem__) == []
        assert len(asked(build=lambda workload: "of another version")) == len(rows)


def test_build_cache_keys_are_those_of_the_same_sources_and_versions(tmp_path, monkeypatch):
    known = EXPECTED["cache"]
    monkeypatch.setattr(cache, "sources_digest", lambda: known["sources"])
    monkeypatch.setattr(cache, "installed_version", known["versions"].__getitem__)
    kept = cache.ArtifactCache(tmp_path, "executorch")
    assert {key: kept.key(Workload.parse(key)) for key in known["keys"]} == known["keys"]


def test_what_the_build_cache_says_of_a_file_reads(tmp_path):
    text = json.loads((GOLDEN / "build.json").read_text())
    assert cache.artifact_to_json(cache.artifact_from_json(text, tmp_path)) == text


def test_spaces_have_the_digests_that_studies_hold(workspace):
    assert {name: choices_digest(load_space(workspace, name)) for name in EXPECTED["digests"]} == EXPECTED["digests"]


def test_the_best_of_the_study_is_the_same_network(workspace):
    best = resolve(workspace, f"{SPACE}:best", CLASSES)
    said = {"name": best.name, "blocks": [block.key for block in best.blocks], "input": best.input.key}
    assert said == EXPECTED["best"]
    assert load_result(workspace, SPACE) == STUDY


@pytest.fixture
def search(workspace, tmp_path) -> Search:
    """The search of that commit asked for again; a device that takes what is predicted measures for it."""
    precision, space = Precision.parse(STUDY["settings"]["precision"]), load_space(workspace, SPACE)
    settings = Settings(**STUDY["settings"] | {"choices": choices_digest(space)})
    predictor = AdditivePredictor.fit(table_of(workspace, precision.value), space=SPACE)
    device = FakeDevice(tmp_path / "device", law=lambda workload: predictor.predict(workload).seconds)

    def measure(workloads):
        with MeasurementStore(tmp_path / "device.sqlite") as store:
            target, timing = Target.parse(settings.target), Timing(min_rounds=3, max_rounds=4)
            return Campaign(store, target, {}, device.build, device.measure, timing).run(workloads).measurements

    feasible = feasible_set(space, predictor, settings)
    return Search(workspace, SPACE, settings, feasible, predictor.calibration.spread, measure)


def test_the_study_goes_on_under_its_name_with_the_same_trials(search, monkeypatch):
    monkeypatch.setattr(Entropy, "scoring", 1)  # entropy has other scores since, which do not mix
    assert search.feasible.count == STUDY["feasible"] > STUDY["trials"]
    result = search.run(trials=STUDY["trials"] + 1, measure=2)
    before = [(one["trial"], one["architecture"], one["score"]) for one in STUDY["history"]]
    assert [(c.trial, c.architecture, c.score) for c in result.history[: len(before)]] == before
    predicted = [one.to_json("local")["predicted_ms"] for one in result.history[: len(before)]]
    assert predicted == [one["predicted_ms"] for one in STUDY["history"]]
    assert len({c.architecture for c in result.history}) == STUDY["trials"] + 1


def test_the_checkpoint_computes_the_same_logits(workspace):
    checkpoint, weights = load_checkpoint(workspace.root / "runs/kept/checkpoint.pt")
    assert checkpoint.network.name == EXPECTED["best"]["name"]
    assert checkpoint.data_seed == checkpoint.recipe.seed
    _, c, t, h, w = checkpoint.network.input.shape
    clip = torch.arange(2 * c * t * h * w, dtype=torch.float32).mul_(0.37).sin_().reshape(2, c, t, h, w)
    with torch.no_grad():
        logits = build(checkpoint, weights)(clip)
    assert torch.allclose(logits, torch.tensor(EXPECTED["logits"]), atol=1e-6)
    (epoch,) = (
        line
        for line in map(json.loads, (GOLDEN / "metrics.jsonl").read_text().splitlines())
        if line["event"] == "epoch"
    )
    assert checkpoint.metrics["top1"] == epoch["top1"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_manifests_read_and_are_written_the_same(tmp_path, precision):
    golden = GOLDEN / f"manifest-{precision}.json"
    manifest = Manifest.read(golden)
    assert manifest.precision.value == precision
    assert list(manifest.architecture.blocks) == EXPECTED["best"]["blocks"]
    manifest.write(tmp_path / "manifest.json")
    assert json.loads((tmp_path / "manifest.json").read_text()) == json.loads(golden.read_text())
