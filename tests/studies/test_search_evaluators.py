import math
import subprocess
import sys

import numpy as np
import pytest

from hwbench.errors import InvalidValue, UnknownName
from hwbench.spaces import load_card, read_space
from hwbench.specs import BlockSpec, TensorSpec
from hwbench.studies.evaluators import AdditiveEvaluator, Context, get
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.workspace import Workspace, shipped

TINY = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
CONTEXT = Context(seed=0, reference=lambda count: [])


def test_entropy_of_one_block_by_hand():
    block = BlockSpec.parse("x3d_i24_m48_o16_k1x3x3+3x1x1_s2_se8_relu")
    x = TensorSpec(1, 24, 8, 16, 16)

    def fit(kernel):
        map_ = np.array([8, 8, 8])
        return -math.log(1 - map_ @ kernel / np.linalg.norm(map_) / np.linalg.norm(kernel))

    spatial, temporal = np.array([1, 3, 3]), np.array([3, 1, 1])
    expected = [24, 9 * fit(spatial), 3 * fit(temporal), 48]  # expand, two depthwise, project; no shortcut, no gate
    assert Entropy(CONTEXT).block_score(block, x) == pytest.approx(sum(0.5 * math.log(v) for v in expected))


def test_a_kernel_shaped_like_its_feature_map_stays_finite():
    block = BlockSpec.parse("x3d_i24_m48_o24_k3x3x3_relu")
    score = Entropy(CONTEXT).block_score(block, TensorSpec(1, 24, 8, 8, 8))
    assert score == pytest.approx(0.5 * math.log(24 * 27 * math.log(100) * 48))


def test_entropy_adds_up_over_blocks_and_grows_with_the_network():
    entropy = Entropy(CONTEXT)
    assert isinstance(entropy, AdditiveEvaluator)
    xs, large = (load_card(Workspace(shipped()), name).network() for name in ("x3d-xs", "x3d-l"))
    assert entropy.score(large) > entropy.score(xs)
    x, total = xs.input, 0.0
    for block in xs.blocks:
        total += entropy.block_score(block, x)
        x = block.output(x)
    assert entropy.score(xs) == pytest.approx(total)


def test_an_unknown_evaluator_is_told_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'zero-cost'"):
        get("zero-cots")


def test_short_training_needs_something_to_train_with():
    with pytest.raises(InvalidValue, match="--data synthetic"):
        get("short-train")(CONTEXT)


def test_short_training_gives_every_network_the_same_seed():
    seeds = []

    def trainer(network, seed):
        seeds.append(seed)
        return len(network.blocks) / 100

    evaluator = get("short-train")(Context(7, lambda count: [], trainer))
    assert not isinstance(evaluator, AdditiveEvaluator)
    rng = np.random.default_rng(0)
    networks = [TINY.network(TINY.random(rng), 8) for _ in range(3)]
    assert [evaluator.score(n) for n in networks] == [len(n.blocks) / 100 for n in networks]
    assert seeds == [7, 7, 7]


def test_a_search_by_entropy_loads_no_torch():
    code = (
        "import sys, hwbench.studies.study; from hwbench.studies.evaluators import get; get('entropy')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
