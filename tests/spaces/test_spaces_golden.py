"""What commit afbb81b said of the shipped spaces: keys, digests, the feasible set. It must stay so, to the last digit.

The files of ``tests/golden/spaces`` were written by ``facts`` below, run on that commit; ``best``, the optimum by
entropy, is that of its second scoring.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from hwbench.latency import macs
from hwbench.spaces import load_card, read_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, Precision, TensorSpec, Workload
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.latencies import choices_digest
from hwbench.workspace import Workspace, shipped

GOLDEN = Path(__file__).parents[1] / "golden" / "spaces"
SPACES = ("x3d-tiny", "x3d-mobile")
CLASSES = 8


def cost(block: BlockSpec, x: TensorSpec) -> float:
    """Seconds: the multiply-adds, and something of the block's own."""
    digest = hashlib.sha256(f"{block.key}@{x.key}".encode()).digest()
    return macs(Workload((block,), x)) / 20e9 + digest[0] / 256 * 1e-5 + 1e-5


def facts(name: str) -> dict[str, object]:
    space = read_space(shipped() / "search_spaces" / f"{name}.toml")
    parts = [part.key for part in space.parts(Precision.INT8, num_classes=CLASSES)]
    sums = SpaceSums.of(space, cost, num_classes=CLASSES, constant=1e-4)
    least, fastest = sums.smallest()
    most, slowest = sums.largest()
    feasible = FeasibleSet(sums, 3 * least)
    rng = np.random.default_rng(7)
    drawn = [feasible.draw(rng, band).key for band in ((0.0, 1.0), (0.9, 1.0)) for _ in range(5)]
    outside = space.random(np.random.default_rng(11))
    context: object = None
    scores = SpaceSums.of(space, Entropy(context).block_score, num_classes=CLASSES)  # type: ignore[arg-type]
    best = feasible.best(scores)
    return {
        "digest": choices_digest(space),
        "choices": space.choices,
        "size": space.size(),
        "parts": len(parts),
        "parts_sha256": hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest(),
        "smallest": [least, fastest.key],
        "largest": [most, slowest.key],
        "count": feasible.count,
        "drawn": drawn,
        "best": [best.score, best.seconds, best.architecture.key],
        "repaired": [outside.key, feasible.repair(outside).key],
        "reachable": len(list(feasible.reachable_parts())),
        "network": [block.key for block in space.network(Architecture.parse(drawn[0]), CLASSES).blocks],
        "total": sums.totals(space.encode([Architecture.parse(key) for key in drawn])).tolist(),
    }


@pytest.mark.parametrize("name", SPACES)
def test_a_space_says_what_it_said(name: str) -> None:
    told = json.loads((GOLDEN / f"{name}.json").read_text())
    assert json.loads(json.dumps(facts(name))) == told


def cards() -> dict[str, list[str]]:
    workspace = Workspace(shipped())
    return {
        name: [block.key for block in load_card(workspace, name).network().blocks] for name in workspace.names("zoo")
    }


def test_cards_say_what_they_said() -> None:
    told = json.loads((GOLDEN / "cards.json").read_text())
    made = cards()
    assert {name: made[name] for name in told} == told


def test_what_a_space_is_digested_as_names_no_class_that_may_be_renamed() -> None:
    for name in ("x3d-mobile", "r2plus1d-mobile"):
        text = repr(read_space(shipped() / "search_spaces" / f"{name}.toml"))
        assert ", stem=Stem(width=" in text
