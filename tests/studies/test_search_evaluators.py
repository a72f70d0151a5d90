import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import hwbench
import hwbench.api.search
from hwbench import Listener, SearchRequest
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidValue, UnknownName
from hwbench.latency import macs
from hwbench.reports import commands
from hwbench.reports.result import read_result
from hwbench.spaces import load_card, read_space
from hwbench.spaces.begun import going_on
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import BlockSpec, Convolution, Network, Precision, TensorSpec, Workload
from hwbench.studies.evaluators import (
    MODULES,
    AdditiveEvaluator,
    Context,
    ReportingEvaluator,
    describe,
    get,
    scoring_of,
)
from hwbench.studies.evaluators.curve import DECAY
from hwbench.studies.evaluators.entropy import LAYER_PRICE, Entropy, layer_entropy, layers_of
from hwbench.studies.stored_settings import JOURNAL
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace, shipped

TINY = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
CONTEXT = Context(seed=0, reference=lambda count: [])
ENTROPY = Entropy(CONTEXT)
FACTORS = [(1, 3, 3), (3, 1, 1)]


def block(text: str, x: TensorSpec) -> float:
    return ENTROPY.block_score(BlockSpec.parse(text), x)


def fit(kernel, extents):
    kernel, extents = np.array(kernel), np.array(extents)
    return -math.log(max(1 - extents @ kernel / np.linalg.norm(extents) / np.linalg.norm(kernel), 0.01))


def num_layers(network: Network) -> int:
    parts = [*network.workload(Precision.FP32).parts()]
    return sum(len(layers_of(part.blocks[0].operations(part.input))) for part in parts[:-1])


@cache
def costs() -> SpaceSums:
    """Multiply-adds of x3d-tiny."""
    return SpaceSums.of(TINY, lambda block, x: float(macs(Workload((block,), x))), num_classes=8)


def test_entropy_of_one_block_by_hand():
    score = block("x3d_i24_m48_o16_k3x3x3_s2_se8_relu", TensorSpec(1, 24, 8, 16, 16))
    temporal, spatial = (2 + 6 * 3 + 2) / 8, (2 + 7 * 3) / 8  # taps on the map; with stride 2 one edge is left out
    depthwise = temporal * spatial**2 * fit((3, 3, 3), (8, 8, 8))
    layers = [24, depthwise, 48]  # expand, depthwise, project; no shortcut, no gate
    assert score == pytest.approx(sum(0.5 * math.log(v) - LAYER_PRICE for v in layers))


def test_taps_on_padding_see_nothing():
    def fan_in(frames):
        one = Convolution(TensorSpec(1, 1, frames, 1, 1), 1, (3, 1, 1))
        return math.exp(2 * layer_entropy((one,))) / fit((3, 1, 1), (frames, 1, 1))

    assert [fan_in(frames) for frames in (1, 2, 4)] == pytest.approx([1, 2, 2.5])
    assert fan_in(300) == pytest.approx(3, rel=0.01)


def test_a_kernel_shaped_like_its_feature_map_stays_finite():
    one = Convolution(TensorSpec(1, 24, 8, 8, 8), 24, (3, 3, 3), groups=24)
    assert layer_entropy((one,)) == pytest.approx(0.5 * math.log((22 / 8) ** 3 * math.log(100)))


@pytest.mark.parametrize(("t", "side"), [*product((1, 2, 4, 5, 13, 16), (1, 2, 7, 16, 33, 112))])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_factorised_kernel_is_worth_less_than_the_one_that_it_replaces(t, side, stride):
    """With the old score, the sum of two layers, it was worth more at every map of at least 4 x 4."""
    x = TensorSpec(1, 24, t, side, side)
    whole, factorised = (
        block(f"x3d_i24_m54_o24_k{kernel}{'_s2' if stride == 2 else ''}_relu", x) for kernel in ("3x3x3", "1x3x3+3x1x1")
    )
    assert whole - factorised == pytest.approx(0.2233, abs=1e-3)


def test_the_price_of_a_product_of_weights_is_that_of_a_draw():
    """Half of the gap of E log of the squared norm, of 27 normal weights and of products of 9 and 3."""
    rng = np.random.default_rng(0)
    spatial, temporal, whole = (np.log((rng.standard_normal((200_000, n)) ** 2).sum(1)) for n in (9, 3, 27))
    x = TensorSpec(1, 1, 8, 8, 8)
    one = Convolution(x, 1, (3, 3, 3))
    pair = tuple(Convolution(x, 1, kernel) for kernel in FACTORS)
    drawn = whole.mean() - spatial.mean() - temporal.mean()
    assert layer_entropy((one,)) - layer_entropy(pair) == pytest.approx(drawn / 2, abs=5e-3)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("stem_i3_o24_k1x3x3+5x1x1_s2_relu", 1),
        ("x3d_i24_m54_o24_k3x3x3_se8_relu", 3),
        ("x3d_i24_m54_o24_k1x3x3_relu", 3),
        ("x3d_i24_m54_o48_k1x3x3+3x1x1_s2_relu", 3),
        ("r2plus1d_i24_m24_o24_k3x1x1+1x3x3_relu", 4),  # an activation stands between
    ],
)
def test_layers_end_where_an_activation_stands(text, count):
    spec = BlockSpec.parse(text)
    assert len(layers_of(spec.operations(TensorSpec(1, spec.in_channels, 4, 8, 8)))) == count


def test_depth_is_worth_something_where_layers_are_wide_alone():
    x = TensorSpec(1, 1, 8, 8, 8)
    assert (
        block("x3d_i24_m48_o24_k1x3x3_relu", x.with_(c=24))
        < 0
        < block("x3d_i256_m768_o256_k3x3x3_relu", x.with_(c=256))
    )


def test_of_networks_that_cost_the_same_the_deepest_does_not_win():
    budget = 0.5 * costs().largest()[0]
    feasible = FeasibleSet(costs(), budget)
    best = feasible.best(SpaceSums.of(TINY, ENTROPY.block_score, num_classes=8)).architecture
    rng = np.random.default_rng(0)
    drawn = {feasible.draw(rng) for _ in range(1500)}
    layers = {architecture: num_layers(TINY.network(architecture, 8)) for architecture in {*drawn, best}}
    assert layers[best] < max(layers.values())
    # of those that have no more layers none expresses more: what a price for each layer is for
    entropy = {a: ENTROPY.score(TINY.network(a, 8)) + LAYER_PRICE * layers[a] for a in layers}
    assert entropy[best] >= max(entropy[a] for a in layers if layers[a] <= layers[best]) - 1e-9
    assert entropy[best] < max(entropy.values())


def test_squeeze_excite_and_activations_are_not_seen_as_the_docstring_says():
    x = TensorSpec(1, 24, 8, 16, 16)
    scores = {block(f"x3d_i24_m54_o24_k3x3x3_{end}", x) for end in ("relu", "se8_relu", "swish", "se8_hswish")}
    assert len(scores) == 1
    assert "Not seen: squeeze-excite, activations" in Entropy.__doc__


def test_entropy_adds_up_over_blocks_and_grows_with_wider_networks_and_inputs():
    assert isinstance(ENTROPY, AdditiveEvaluator)
    xs, small, middle, large = (
        load_card(Workspace(shipped()), f"x3d-{size}").network() for size in ("xs", "s", "m", "l")
    )
    scores = [ENTROPY.score(network) for network in (xs, small, middle, large)]
    assert scores == sorted(scores)
    x, total = xs.input, 0.0
    for one in xs.blocks:
        total += ENTROPY.block_score(one, x)
        x = one.output(x)
    assert scores[0] == pytest.approx(total)


def test_an_unknown_evaluator_is_told_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'zero-cost'"):
        get("zero-cots")


@pytest.mark.parametrize("name", ["short-train", "curve", "zero-cost"])
def test_what_looks_at_data_needs_some(name):
    with pytest.raises(InvalidValue, match=f"evaluator '{name}' needs .* --data synthetic"):
        get(name)(CONTEXT)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_evaluators_say_what_a_score_rests_on(name):
    evaluator = get(name)
    assert describe(evaluator) == f"{evaluator.unit}; {evaluator.basis}"
    assert scoring_of(evaluator) == (1 if name == "fitted" else 2)


def test_an_evaluator_of_others_says_as_little_as_it_must():
    class Plain:
        name, unit = "plain", "points"

    assert describe(Plain) == "points"
    assert scoring_of(Plain) == 1


@pytest.fixture
def search(workspace, make_search, monkeypatch):
    """A search with an evaluator of another package."""
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)

    def search(listener=None, **changes):
        options = {"budget": "4.2 ms", "evaluator": "deep-and-slow", "trials": 2, "measure": 1, "study": "own"}
        return hwbench.search(SearchRequest(**options | changes), listener or Listener(), workspace=workspace)

    return search


def videos(workspace, seed):
    spec = SyntheticSpec(train_per_class=1, val_per_class=1, size=24, frames=2)
    return str(prepare(workspace, replace(spec, seed=seed)))


def test_data_and_epochs_of_an_evaluator_of_others_are_kept(workspace, search):
    mine, others = videos(workspace, 1), videos(workspace, 2)
    begun = search(data=mine, epochs=3).settings
    assert (begun.data, begun.effort) == (mine, "3 epochs")
    assert search().settings == begun  # it goes on with both
    with pytest.raises(InvalidValue, match=re.escape(f"data was '{mine}', now '{others}'")):
        search(data=others)
    with pytest.raises(InvalidValue, match="effort was '3 epochs', now '4 epochs'"):
        search(epochs=4)
    journal = workspace.studies / "own" / JOURNAL
    journal.write_text(journal.read_text().replace(json.dumps(mine), '""').replace('"3 epochs"', '""'))  # as of before
    assert search(data=others, epochs=4).settings.data == ""  # on which no score rests


def test_networks_that_an_evaluator_of_others_scored_without_data_race_on_any(workspace, search):
    begun = search()
    assert (begun.settings.data, begun.settings.effort) == ("", "")
    assert "--data synthetic --finalists 2" in commands.let_race(read_result(workspace, "own"))
    mine = videos(workspace, 1)
    raced = search(data=mine, finalists=2, finalist_epochs=1, on_error="skip")
    assert raced.race.data == mine
    again = search(data=videos(workspace, 2))  # it still goes on with any
    for later in (raced, again):
        assert [one.architecture for one in later.history] == [one.architecture for one in begun.history]
        assert (later.settings.data, later.settings.effort) == ("", "")  # no score rests on what finalists saw
    raced = search(data=mine, finalists=2, finalist_epochs=1, on_error="skip")
    command = commands.search(read_result(workspace, "own"))
    assert f" --data {mine} --finalists 2 --finalist-epochs 1 " in command
    assert " --epochs " not in command


def test_networks_that_an_evaluator_of_others_scored_without_data_race_again_on_the_data_of_their_last_race(
    workspace, search, monkeypatch
):
    make, scored = get("deep-and-slow"), []
    begin, score = make.__init__, make.score

    def begun(evaluator, context):
        begin(evaluator, context)
        evaluator.trainer = context.trainer

    def noted(evaluator, network):
        scored.append(evaluator.trainer.__self__.source)
        return score(evaluator, network)

    monkeypatch.setattr(make, "__init__", begun)
    monkeypatch.setattr(make, "score", noted)
    how = {"finalists": 2, "finalist_epochs": 1, "on_error": "skip"}
    search()
    mine, keeper = videos(workspace, 1), Keeper()
    raced = search(data=mine, **how)
    again = search(keeper, **how)
    assert (raced.race.data, again.race.data) == (mine, mine)
    assert f"study own races on the data of its last race, --data {mine}" in keeper.lines
    assert len(search(trials=3, **how).history) == 3
    assert scored == 3 * ["synthetic"]  # scores of two data are no order


@pytest.mark.parametrize("begun_with_data", [False, True])
def test_the_command_that_goes_on_with_a_race_of_others_names_its_data_once(workspace, search, begun_with_data):
    mine = videos(workspace, 1)
    search(**{"data": mine} if begun_with_data else {})
    assert (f" --data {mine} " in going_on(workspace.studies / "own", [])) == begun_with_data
    search(data=mine, finalists=2, finalist_epochs=1, on_error="skip")
    command = going_on(workspace.studies / "own", [])
    assert command.count(f" --data {mine} ") == 1
    assert " --finalists 2 " in command


def test_no_further_networks_are_scored_with_data_that_a_study_of_others_does_not_keep(workspace, search):
    search()
    mine = videos(workspace, 1)
    for typed in ({"data": mine}, {"epochs": 3}):
        with pytest.raises(InvalidValue, match=r"keeps no data.*leave --trials at 2 .*or take another --study"):
            search(trials=4, **typed)
    assert len(search(trials=3).history) == 3
    assert len(search(trials=3, data=mine).history) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"finalists": 2}, True),
        ({"finalists": 2, "evaluator": "entropy"}, True),
        ({"finalists": 2, "data": "synthetic"}, False),
        ({"finalists": 2, "evaluator": "short-train"}, False),
        ({}, False),
    ],
)
def test_who_races_without_data_is_told_before_the_first_trial(search, options, told):
    class Interrupting(Keeper):
        def say(self, message):
            super().say(message)
            if message.startswith("learned from "):  # before a training is timed
                raise KeyboardInterrupt

        def progress(self, at):
            if at.stage == "trials":
                raise KeyboardInterrupt

    keeper = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        search(keeper, **options)
    lines = [line for line in keeper.lines if line.startswith("no --data is named: finalists race on synthetic videos")]
    assert len(lines) == told


@pytest.mark.parametrize("typed", [{"epochs": 3}, {"frames_share": 0.5}])
def test_a_training_that_was_typed_is_kept_with_the_data_it_is_on(workspace, search, typed):
    assert search(**typed).settings.data == "synthetic"
    with pytest.raises(InvalidValue, match="data was 'synthetic', now '/"):
        search(data=videos(workspace, 1), **typed)


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


def curve_of(*losses):
    seeds = []

    def train(network, seed, report):
        seeds.append(seed)
        for epoch, loss in enumerate(losses):
            report(epoch, loss)

    return get("curve")(Context(7, lambda count: [], losses=train)), seeds


NETWORK = TINY.network(TINY.random(np.random.default_rng(0)), 8)


def test_the_curve_is_the_mean_of_losses_late_ones_first():
    evaluator, seeds = curve_of(2.0, 1.0, 0.5)
    weights = [DECAY**2, DECAY, 1]
    expected = -np.average([2.0, 1.0, 0.5], weights=weights)
    assert evaluator.score(NETWORK) == pytest.approx(expected)
    assert seeds == [7]
    slower, _ = curve_of(2.0, 1.5, 0.5)
    assert slower.score(NETWORK) < expected


@pytest.mark.parametrize("losses", [(2.0, math.nan), (math.nan,), (2.0, math.inf), ()])
def test_a_training_that_diverges_has_no_score(losses):
    evaluator, _ = curve_of(*losses)
    assert math.isnan(evaluator.score(NETWORK))


def test_the_curve_reports_the_score_so_far_and_can_be_given_up():
    evaluator, _ = curve_of(2.0, 1.0, 0.5)
    assert isinstance(evaluator, ReportingEvaluator)
    heard = []
    score = evaluator.score_reporting(NETWORK, lambda epoch, value: heard.append((epoch, value)))
    assert heard[0] == (0, -2.0)
    assert heard[-1] == (2, score)
    with pytest.raises(KeyboardInterrupt):
        evaluator.score_reporting(NETWORK, _stop)


def _stop(epoch: int, value: float) -> None:
    raise KeyboardInterrupt


def test_a_search_by_entropy_loads_no_torch():
    code = (
        "import sys, hwbench.studies.study; from hwbench.studies.evaluators import get; get('entropy')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
