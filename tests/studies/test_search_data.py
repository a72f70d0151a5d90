"""Short trainings and clips of a study's data, on a small real data set."""

import math
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import hwbench.data.sources
import hwbench.training.loop
from hwbench import SearchRequest, search
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.data import ClipSpec, Normalisation, SyntheticSpec
from hwbench.data.samples import Draw
from hwbench.data.synthetic import prepare
from hwbench.errors import CheckFailed, InvalidValue, VideoError
from hwbench.interpreter import cores
from hwbench.latency import table_path
from hwbench.models import by_hand
from hwbench.spaces import load_space
from hwbench.specs import BlockSpec, ModelName, Network, Precision, TensorSpec
from hwbench.studies.evaluators import Context, get
from hwbench.testing.tables import installed_target, space_table
from hwbench.training import Recipe, Resources, fit
from hwbench.training.run import initial, open_data
from hwbench.workspace import Workspace

SPEC = SyntheticSpec(train_per_class=5, val_per_class=1, size=24, frames=8)
BLOCKS = (
    "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
    "x3d_i8_m16_o16_k3x3x3_s2_relu",
    "head_i16_m16_d16_o8_kglobal_relu",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("data") / "work")


@pytest.fixture(scope="module")
def source(place) -> str:
    return str(prepare(place, SPEC))


@pytest.fixture
def data(place, source) -> StudyData:
    return StudyData(place, source, Fidelity(2))


def network(t=4, side=16, width=16) -> Network:
    head = f"head_i{width}_m16_d16_o400_kglobal_relu"
    body = BLOCKS[1].replace("o16", f"o{width}")
    return Network("tiny", tuple(map(BlockSpec.parse, (BLOCKS[0], body, head))), TensorSpec(1, 3, t, side, side))


def plain(place, source, size, recipe, **how):
    """A training as ``hwbench train`` does it."""
    clips = open_data(place, source, size, recipe)
    module = initial(network().with_classes(8), recipe)
    return module, fit(module, clips.training, clips.validation, recipe, resources=Resources("cpu", cores()), **how)


def test_a_short_training_is_a_training(place, source, data):
    _, result = plain(place, source, (4, 16, 16), Recipe(epochs=2, seed=3, eval_every=2))
    assert data.top1(network(), 3) == result.scores.top1


def test_a_network_says_what_time_its_clips_cover(data):
    usual, short = data.sized(network().input, 3), data.sized(network().input, 3, 0.25)
    assert short.training.clip == short.validation.clip == ClipSpec(4, span_s=0.25) != usual.training.clip
    drawn = usual.training[Draw(0, 0, (4, 16, 16), 0.25)].pictures
    assert torch.equal(drawn, short.training[0].pictures)
    assert not torch.equal(drawn, usual.training[0].pictures)
    heard: dict[float | None, list[float]] = {}
    for span_s in (None, 0.25):
        losses = heard.setdefault(span_s, [])
        data.losses(replace(network(), span_s=span_s), 3, lambda _, loss, losses=losses: losses.append(loss))
    assert heard[None] != heard[0.25]


OWN = """from torch import nn

def own(num_classes=8):
    layers = nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, num_classes))

own.input_shape = 1, 3, 4, 16, 16
own.input_mean, own.input_std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
"""


def test_a_model_by_hand_is_trained_on_pixels_as_its_function_says(place, source, data, tmp_path, monkeypatch):
    (tmp_path / "search_data_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = by_hand.load(ModelName("search_data_nets", "own"), 8).network
    recipe, normalisation = Recipe(epochs=2, seed=3, eval_every=2), Normalisation((0.0,) * 3, (1.0,) * 3)
    clips = open_data(place, source, (4, 16, 16), recipe, normalisation=normalisation)
    how = {"resources": Resources("cpu", cores()), "losses": lambda _, loss: steps.append(loss)}
    steps, heard = [], []
    fit(initial(own, recipe), clips.training, clips.validation, recipe, **how)
    data.losses(own, 3, lambda _, loss: heard.append(loss))
    assert heard == [pytest.approx(np.mean(steps[:2])), pytest.approx(np.mean(steps[2:]))]
    assert data.for_network(own, 3, own.input).normalisation == normalisation  # of a finalist's checkpoint
    assert data.for_network(network(), 3, network().input).normalisation == Normalisation()


def test_zero_cost_looks_at_pixels_as_each_model_by_hand_says(data, tmp_path, monkeypatch):
    as_written = OWN.partition("own.input_mean")[0].replace("own", "usual")
    halved = OWN.replace("own", "halved").replace("(1.0, 1.0, 1.0)", "(2.0, 2.0, 2.0)")
    (tmp_path / "zero_cost_nets.py").write_text(f"{as_written}\n{OWN}\n{halved}")
    monkeypatch.syspath_prepend(tmp_path)
    names = ("usual", "own", "halved")
    usual, own, halved = (by_hand.load(ModelName("zero_cost_nets", name), 8).network for name in names)
    evaluator = get("zero-cost")(Context(3, lambda count: [usual], clips=data.clips))
    assert evaluator.score(usual) == 0
    assert evaluator.score(own) != 0  # of equal weights
    assert evaluator.score(halved) not in (0, evaluator.score(own))
    normalisation = data.for_network(usual, 3, usual.input).normalisation
    pixels = data.clips(own.input, 4, 3, own)
    mean, std = (torch.tensor(one).reshape(3, 1, 1, 1) for one in (normalisation.mean, normalisation.std))
    for clips in (data.clips(usual.input, 4, 3), data.clips(usual.input, 4, 3, usual)):
        assert torch.allclose(clips * std + mean, pixels, atol=1e-6)
    assert torch.allclose(data.clips(halved.input, 4, 3, halved) * 2, pixels)


def test_losses_are_those_of_the_steps_by_epoch_and_change_nothing(place, source, data):
    recipe, steps, heard = Recipe(epochs=2, seed=3, eval_every=2), [], []
    module, _ = plain(place, source, (4, 16, 16), recipe, losses=lambda epoch, loss: steps.append((epoch, loss)))
    untold, _ = plain(place, source, (4, 16, 16), recipe)
    assert all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), untold.state_dict().values()))
    assert [epoch for epoch, _ in steps] == [0, 0, 1, 1]  # 40 videos in batches of 16
    data.losses(network(), 3, lambda epoch, loss: heard.append((epoch, loss)))
    assert heard == [(e, pytest.approx(np.mean([v for at, v in steps if at == e]))) for e in (0, 1)]


def test_clips_and_their_order_are_the_same_for_all_networks(data, monkeypatch):
    """Whatever the widths: the losses of two networks differ, what they see does not."""
    seen, load = [], hwbench.training.loop.Loader.batches

    def batches(loader, order):
        order = list(order)
        seen.append(order)
        return load(loader, order)

    monkeypatch.setattr(hwbench.training.loop.Loader, "batches", batches)
    curves = [get("curve")(Context(5, lambda count: [], losses=data.losses)).score(network(width=w)) for w in (8, 16)]
    assert curves[0] != curves[1]
    assert seen[:2] == seen[2:]


def test_trainings_have_the_threads_of_this_machine_and_read_here_what_fits(data, monkeypatch):
    used = []

    class Stop(Exception):
        pass

    def stop(*_, resources, **__):
        used.append(resources)
        raise Stop

    monkeypatch.setattr(hwbench.training.loop, "fit", stop)
    for run in (lambda: data.top1(network(), 0), lambda: data.losses(network(), 0, lambda *_: None)):
        with pytest.raises(Stop):
            run()
    assert used == 2 * [Resources("auto", cores(), 0)]
    for given, threads in (("", cores()), ("1,2", 1), ("x", cores())):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        with pytest.raises(Stop):
            StudyData(data.workspace, data.source, data.fidelity).top1(network(), 0)
        assert used[-1].threads == threads
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(hwbench.data.sources, "CACHE_BYTES", 1000)
    with pytest.raises(Stop):
        StudyData(data.workspace, data.source, data.fidelity).top1(network(), 0)
    assert used[-1].workers > 0


@pytest.fixture(scope="module")
def damaged(place, source, tmp_path_factory) -> str:
    """The data with a video on each side that cannot be read, the first to train on among them."""
    folder = tmp_path_factory.mktemp("damaged") / "clips"
    shutil.copytree(source, folder)
    for split in ("train", "val"):
        sorted((folder / split).rglob("*.mp4"))[0].write_text("no video")
    return str(folder)


def test_an_unreadable_video_ends_a_training_unless_it_is_left_out(place, damaged):
    with pytest.raises(VideoError, match="damaged"):
        StudyData(place, damaged, Fidelity(1)).top1(network(), 0)
    for on_error in ("skip", "replace"):
        data = StudyData(place, damaged, Fidelity(1), on_error=on_error)
        score = data.top1(network(), 0)
        assert 0 <= score <= 1
        assert pickle.loads(pickle.dumps(data)).top1(network(), 0) == score  # as processes of a search have it
    with pytest.raises(InvalidValue, match="expected raise, skip or replace"):
        StudyData(place, damaged, Fidelity(1), on_error="ignore").top1(network(), 0)


def test_clips_of_unreadable_videos_are_those_of_others(place, damaged):
    count = 40  # all of them
    with pytest.raises(VideoError, match="damaged"):
        StudyData(place, damaged, Fidelity(1)).clips(network().input, count, 0)
    for on_error in ("skip", "replace"):
        clips = StudyData(place, damaged, Fidelity(1), on_error=on_error).clips(network().input, count, 0)
        assert clips.shape == (count, 3, 4, 16, 16)


def test_without_a_readable_video_nothing_is_trained(place, damaged, tmp_path):
    shutil.copytree(damaged, tmp_path / "clips")
    for file in (tmp_path / "clips").rglob("*.mp4"):
        file.write_text("no video")
    with pytest.raises(VideoError, match=r"no video of .* can be read: hwbench data check"):
        StudyData(place, str(tmp_path / "clips"), Fidelity(1), on_error="skip").top1(network(), 0)


def test_all_sizes_share_one_list_and_what_was_decoded(data, monkeypatch):
    listed, read = [], hwbench.data.sources.read
    monkeypatch.setattr(hwbench.data.sources, "read", lambda *a: listed.append(a) or read(*a))
    for t, side in ((4, 16), (2, 16), (4, 12), (8, 20)):
        data.top1(network(t, side), 0)
    assert len(listed) == 1
    monkeypatch.setattr(hwbench.data.datasets.CachedVideo, "_opened", _no_file)
    assert math.isfinite(data.top1(network(3, 18), 0))


def _no_file(*_):
    raise AssertionError("a video was opened again")


def test_a_training_that_diverges_has_no_score(data, monkeypatch):
    recipe = Recipe(epochs=2, learning_rate=1e30, warmup_share=0, clip_grad_norm=1e30)
    monkeypatch.setattr(StudyData, "recipe", lambda self, seed: recipe)
    assert math.isnan(data.top1(network(), 0))
    heard = []
    data.losses(network(), 0, lambda epoch, loss: heard.append(loss))
    assert math.isnan(heard[-1])
    assert math.isnan(get("curve")(Context(0, lambda count: [], losses=data.losses)).score(network()))


def test_what_a_report_raises_ends_the_training(data):
    class GivenUp(Exception):
        pass

    def give_up(epoch, loss):
        assert epoch == 0
        raise GivenUp

    with pytest.raises(GivenUp):
        data.losses(network(), 0, give_up)


def test_clips_show_the_same_videos_at_every_size(data):
    small, large = (data.clips(TensorSpec(1, 3, 4, side, side), 6, 1) for side in (8, 16))
    assert small.shape == (6, 3, 4, 8, 8)
    assert torch.equal(small, data.clips(TensorSpec(1, 3, 4, 8, 8), 6, 1))
    means = [clips.mean((2, 3, 4)).flatten() for clips in (small, large)]
    assert torch.corrcoef(torch.stack(means))[0, 1] > 0.9
    assert not torch.equal(small, data.clips(TensorSpec(1, 3, 4, 8, 8), 6, 2))
    assert len(data.clips(TensorSpec(1, 3, 1, 8, 8), 40, 1)) == 40  # as many as there are


@pytest.mark.parametrize(
    ("fidelity", "text", "size"),
    [
        (Fidelity(2), "2 epochs", (8, 64, 64)),
        (Fidelity(3, 0.5), "3 epochs, frames-share 0.5", (4, 64, 64)),
        (Fidelity(1, 0.01, 0.75), "1 epochs, frames-share 0.01, resolution-share 0.75", (1, 48, 48)),
    ],
)
def test_a_fidelity_says_what_it_trains_on(fidelity, text, size):
    assert str(fidelity) == text
    assert fidelity.reduced(TensorSpec(1, 3, 8, 64, 64)).shape[2:] == size


def test_a_reduced_training_sees_smaller_clips(data, monkeypatch):
    shapes = []

    def stop(module, training, *_, **__):
        shapes.append(training.shape)
        raise CheckFailed("enough")

    monkeypatch.setattr(hwbench.training.loop, "fit", stop)
    data.fidelity = replace(data.fidelity, frames_share=0.5, resolution_share=0.5)
    assert math.isnan(data.top1(network(8, 16), 0))
    assert shapes == [(4, 8, 8)]


@pytest.mark.parametrize(
    ("fidelity", "words"),
    [
        (Fidelity(1, 0.5), r"--frames-share 0\.5: squeeze-mobile:frames.* takes clips of 8 frames.*a larger share"),
        (Fidelity(1, 1.0, 0.1), r"--resolution-share 0\.1: squeeze-mobile:frames.* takes pictures of at least 2 x 2"),
    ],
)
def test_a_network_that_does_not_take_the_smaller_clips_is_told(place, data, fidelity, words):
    space = load_space(place, "squeeze-mobile")
    drawn = [space.network(space.random(np.random.default_rng(seed)), 8) for seed in range(20)]
    squeezed = min((one for one in drawn if one.input.t == 8), key=lambda one: one.input.h)
    data.fidelity = fidelity
    for score in (data.top1, data.epoch_s):
        with pytest.raises(InvalidValue, match=words):
            score(squeezed, 0)
    data.fidelity = Fidelity(1, 1.0, 0.5)
    assert data.fidelity.clip_of(squeezed) == squeezed.input.with_(h=squeezed.input.h // 2, w=squeezed.input.w // 2)


def test_a_search_does_not_begin_with_clips_that_networks_do_not_take(tmp_path):
    place = Workspace.create(tmp_path / "work")
    space = load_space(place, "squeeze-mobile")
    space_table(space, Precision.INT8).write(table_path(place.root, installed_target(), Precision.INT8))
    request = SearchRequest(budget="1 s", space="squeeze-mobile", evaluator="curve", data="synthetic", frames_share=0.5)
    with pytest.raises(InvalidValue, match=r"--frames-share 0\.5: squeeze-mobile:frames"):
        search(request, workspace=place)
    assert not list(place.studies.glob("*"))


def test_zero_cost_looks_at_the_data(place, data):
    space = load_space(place, "x3d-tiny")
    one = replace(space.network(space.random(np.random.default_rng(0)), 8), input=TensorSpec(1, 3, 4, 16, 16))
    assert math.isfinite(get("zero-cost")(Context(0, lambda count: [one], clips=data.clips)).score(one))
