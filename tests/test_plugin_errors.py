"""What things of other packages raise is told with their names; what hwbench's own raise stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from plugin_packages import offer
from torch import nn

from hwbench.blocks.graph import deploy_graph
from hwbench.blocks.graph.rules import rules
from hwbench.data import open_splits
from hwbench.data.decoders import decoders
from hwbench.data.decoders import get as get_decoder
from hwbench.data.encoding import write_video
from hwbench.data.listings import open_listing
from hwbench.data.media import FileSource
from hwbench.data.readers import readers
from hwbench.devices import Device, transports
from hwbench.errors import DeviceUnreachable, HwbenchError, InvalidFile, InvalidValue, MissingDependency
from hwbench.registry import Registry, blaming
from hwbench.spaces import read_card, read_space
from hwbench.spaces.families import families
from hwbench.spaces.feasible import FeasibleSet
from hwbench.studies.evaluations import Assignment, EvaluatorSetup, GaveUp, InProcess
from hwbench.studies.evaluators import Context, evaluators, scoring_of
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.testing.evaluators import members
from hwbench.testing.searches import search_by_law
from hwbench.workspace import Workspace, shipped, writing

EVALUATORS = """
import sys


class Unlicensed:
    name, unit = "unlicensed", "points"

    def __init__(self, context):
        raise RuntimeError("no licence key")

    def score(self, network):
        return 1.0


class Broken:
    name, unit = "broken", "points"

    def __init__(self, context):
        pass

    def score(self, network):
        raise RuntimeError("engine broke")


class Leaving(Broken):
    def score(self, network):
        sys.exit(7)


class Reporting(Broken):
    def score_reporting(self, network, report):
        report(0, 1.0)
        raise RuntimeError("curve broke")


class Summed(Broken):
    def block_score(self, block, x):
        raise ZeroDivisionError("no weights")


class Uncounted(Broken):
    value = "nan"

    def block_score(self, block, x):
        return float(self.value) if "k3" in block.key else 1.0


class Endless(Uncounted):
    value = "inf"


class Wordy(Broken):
    def block_score(self, block, x):
        return "many"


class Versioned(Broken):
    scoring = "second"
"""
SAMPLERS = """
from optuna import TrialPruned
from optuna.samplers import RandomSampler


def broken(seed):
    raise RuntimeError("no seed today")


def nothing(seed):
    return None


class Broken(RandomSampler):
    def infer_relative_search_space(self, study, trial):
        raise ValueError("no space")


class Unprepared(RandomSampler):
    def before_trial(self, study, trial):
        raise ValueError("not yet")


class Forgetful(RandomSampler):
    def after_trial(self, study, trial, state, values):
        raise ValueError("no memory")


class Pruning(RandomSampler):
    def sample_relative(self, study, trial, search_space):
        raise TrialPruned("not this one")
"""
READERS = """
from hwbench.data.readers import ListedVideo, Listing
from hwbench.errors import InvalidFile


class Broken:
    def read(self, path):
        raise KeyError("videos")


class Strict:
    def read(self, path):
        raise InvalidFile("no such layout")


class Lists:
    def read(self, path):
        return []


class Numbered:
    def read(self, path):
        return Listing((ListedVideo(path, "a"), ListedVideo(path, 3)))


class Paths:
    def read(self, path):
        return Listing((ListedVideo(path, ("a", "b")),), (path,))


class Needs:
    def __init__(self, fps):
        self.fps = fps

    def read(self, path):
        return None
"""
UNLABELLED = (
    "reader of data 'odd' of the package plugins: expected a Listing of {} with each video a ListedVideo whose label "
    "is text, got "
)
TRANSPORTS = """
from hwbench.devices import TransportKind
from hwbench.devices.local import LocalTransport
from hwbench.errors import DeviceUnreachable


def connect(address):
    raise OSError("cable broke")


def refuse(address):
    raise DeviceUnreachable("it is off")


broken, off = TransportKind(connect), TransportKind(refuse)


class Serial(LocalTransport):
    over_usb = True

    def run(self, argv, **options):
        if argv[0] == "cat":
            raise PermissionError(13, "Permission denied", "/dev/ttyUSB0")
        return super().run(argv, **options)


serial = TransportKind(lambda address: Serial())
"""
RULES = """
from torch import nn


def broken(call):
    raise KeyError("beta")


def nothing(call):
    call.emit(nn.ReLU(), call.tensor())


def other(call):
    return call.result(call.emit(nn.ReLU(), call.tensor()))


def smaller(call):
    return call.result(call.emit(nn.MaxPool2d(2), call.tensor()), shape=(1, 4, 2, 4, 4))


class Odd(nn.Module):
    def forward(self, x):
        raise TypeError("no such clip")


def odd(call):
    return call.result(call.emit(Odd(), call.tensor()))
"""
FAMILIES = """
from hwbench.spaces.families import X3d


class Stage(X3d):
    name = "stage"

    def stage(self, choice, x):
        raise KeyError("no such stage")


class Ends(X3d):
    name = "ends"

    def ends(self, fields):
        raise ZeroDivisionError("no ends")


class Head(X3d):
    name = "head"

    def ends(self, fields):
        ends = super().ends(fields)
        return type("HeadlessEnds", (type(ends),), {"head": self.no_head})(**vars(ends))

    def no_head(self, *_):
        raise TypeError("no head")


class Checked(X3d):
    name = "checked"

    def check(self, stage):
        raise IndexError("nothing to check")


class Carded(X3d):
    name = "carded"

    def card(self, fields):
        raise AttributeError("no card")


stage, ends, head, checked, carded = Stage(), Ends(), Head(), Checked(), Carded()
"""
DECODER = """
import numpy as np

from hwbench.data.decoders import PyAV


class Broken:
    def __init__(self):
        raise RuntimeError("no card")

    def open(self, source, info=None):
        return source.open(info)


class Nameless:
    def open(self, source, info=None):
        return source.open(info)


class Numbered(Nameless):
    identity = 1


class Later(Nameless):
    def __init__(self):
        self.identity = "later 1"


class Changing:
    identity = "changing 1"

    def open(self, source, info=None):
        video = PyAV().open(source, info)
        whole = video.read
        video.read = lambda indices: self.changed(whole(indices))
        return video


class Floats(Changing):
    def changed(self, frames):
        return frames.astype(float)


class First(Changing):
    def changed(self, frames):
        return frames[:1]


class Grey(Changing):
    def changed(self, frames):
        return frames[..., :1]


class One(Changing):
    def changed(self, frames):
        return frames[0]


class Nothing(Changing):
    def changed(self, frames):
        return None


class Low(Changing):
    def changed(self, frames):
        return frames[:, ::2]


class Small(Changing):
    def changed(self, frames):
        return frames[:, ::2, ::2]
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


@pytest.mark.parametrize(
    ("name", "thing", "said"),
    [
        ("unlicensed", "Unlicensed", "failed: RuntimeError: no licence key"),
        ("broken", "Summed", "failed: ZeroDivisionError: no weights"),
        ("broken", "Uncounted", r"expected a finite score of block \S*k3\S* on [0-9x]+, got nan"),
        ("broken", "Endless", r"expected a finite score of block \S*k3\S* on [0-9x]+, got inf"),
        ("broken", "Wordy", "failed: ValueError: could not convert string to float: 'many'"),
        ("broken", "Versioned", "expected a whole number as its scoring, got 'second'"),
    ],
)
def test_an_evaluator(name, thing, said, workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, EVALUATORS, {name: thing})
    with pytest.raises(HwbenchError, match=rf"^evaluator '{name}' of the package plugins:? {said}$"):
        search_by_law(workspace, "x3d-tiny", 4e-3, trials=3, evaluator=name)


def test_an_evaluator_that_fails_on_a_network(workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, EVALUATORS, {"broken": "Broken"})
    said = r"^evaluator 'broken' of the package plugins failed on x3d-tiny:\S+: RuntimeError: engine broke$"
    with pytest.raises(HwbenchError, match=said) as error:
        search_by_law(workspace, "x3d-tiny", 4e-3, trials=3, evaluator="broken")
    assert isinstance(error.value.__cause__, RuntimeError)


def test_an_evaluator_that_ends_the_process(workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, EVALUATORS, {"leaving": "Leaving"})
    said = r"^evaluator 'leaving' of the package plugins failed on x3d-tiny:\S+: SystemExit: 7$"
    with pytest.raises(HwbenchError, match=said):
        search_by_law(workspace, "x3d-tiny", 4e-3, trials=3, evaluator="leaving")


def test_an_evaluator_that_fails_while_it_reports(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, EVALUATORS, {"broken": "Reporting"})
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    (network,), give_up = members(space, 1), [False, True]
    scored = InProcess(EvaluatorSetup(evaluators.get("broken"), Context(0, lambda count: ())))
    scored.judge = lambda trial, epoch, score: give_up.pop(0)
    scored.assign(Assignment(0, network, reports=True))
    said = r"^evaluator 'broken' of the package plugins failed on x3d-tiny:\S+: RuntimeError: curve broke$"
    with pytest.raises(HwbenchError, match=said):
        next(scored.outcomes())
    scored.assign(Assignment(1, network, reports=True))
    assert isinstance(next(scored.outcomes()), GaveUp)


@pytest.mark.parametrize("code", ["raise SystemExit('not today')", "import sys; sys.exit()"])
def test_a_package_whose_import_ends_the_process(code, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, code, {"leaving": "Leaving"})
    with pytest.raises(MissingDependency, match=r"'leaving' of the package plugins does not load .*SystemExit: "):
        evaluators.get("leaving")


@pytest.mark.parametrize("error", [SystemExit(143), KeyboardInterrupt()], ids=repr)
def test_what_ends_the_program_from_outside_is_nobodys_fault(error):
    with pytest.raises(type(error)), blaming("evaluator 'slow'"):
        raise error


def test_a_version_of_scores_is_a_number(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, evaluators, EVALUATORS, {"versioned": "Versioned", "broken": "Broken"})
    assert scoring_of(evaluators.get("broken")) == 1
    with pytest.raises(InvalidValue, match="'versioned' of the package plugins: expected a whole number"):
        scoring_of(evaluators.get("versioned"))


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("broken", " failed: RuntimeError: no seed today"),
        ("nothing", ": expected an optuna.samplers.BaseSampler, got None"),
        ("Broken", " failed: ValueError: no space"),
        ("Unprepared", " failed: ValueError: not yet"),
        ("Forgetful", " failed: ValueError: no memory"),
    ],
)
def test_a_sampler(thing, said, workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, samplers, SAMPLERS, {"odd": thing})
    with pytest.raises(HwbenchError, match=f"^sampler 'odd' of the package plugins{said}$"):
        search_by_law(workspace, "x3d-tiny", 4e-3, trials=3, sampler="odd")


def test_a_sampler_that_prunes_a_trial_did_not_fail(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, samplers, SAMPLERS, {"odd": "Pruning"})
    feasible = FeasibleSet.of_costs({"a": {1: 1, 2: 2}}, 2)
    sampler = FeasibleSampler(feasible, samplers.get("odd"), seed=0, startup=0)
    with pytest.raises(optuna.TrialPruned, match="not this one"):
        optuna.create_study(sampler=sampler).ask().suggest_categorical("a", [1, 2])


@pytest.mark.parametrize("opens", [open_splits, open_listing])
@pytest.mark.parametrize(
    ("thing", "error", "said"),
    [
        ("Broken", HwbenchError, "reader of data 'odd' of the package plugins failed on {}: KeyError: 'videos'"),
        ("Strict", InvalidFile, "no such layout"),
        ("Lists", HwbenchError, "reader of data 'odd' of the package plugins: expected a Listing of {}, got []"),
        ("Numbered", HwbenchError, f"{UNLABELLED}ListedVideo(path="),
        ("Paths", HwbenchError, f"{UNLABELLED}PosixPath("),
        ("Needs", HwbenchError, "reader of data 'odd' of the package plugins failed: TypeError: "),
    ],
)
def test_a_reader(opens, thing, error, said, workspace, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, readers, READERS, {"odd": thing})
    with pytest.raises(error) as caught:
        opens(workspace, f"odd:{workspace.root}")
    assert str(caught.value).startswith(said.format(workspace.root))


@pytest.mark.parametrize(
    ("thing", "error", "said"),
    [
        ("broken", HwbenchError, "transport 'odd' of the package plugins failed on box: OSError: cable broke"),
        ("off", DeviceUnreachable, "it is off"),
    ],
)
def test_a_transport(thing, error, said, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, transports, TRANSPORTS, {"odd": thing})
    with pytest.raises(error, match=f"^{said}$"):
        Device("box", "odd").transport()


def test_what_a_transport_raises_when_it_is_used(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, transports, TRANSPORTS, {"odd": "serial"})
    said = r"^transport 'odd' of the package plugins failed on box: PermissionError: .*/dev/ttyUSB0'$"
    with Device("box", "odd").transport() as transport:
        assert transport.over_usb
        assert transport.run(["true"], timeout_s=5).ok
        with pytest.raises(HwbenchError, match=said), writing(tmp_path):
            transport.run(["cat"], timeout_s=5)
        process = transport.spawn(["sleep", "30"])
        with pytest.raises(TimeoutError):
            process.read_line(0.05)
        process.kill()
        assert process.wait(5).status < 0


CLIP = torch.randn(1, 3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
SOFTPLUS = "rule for the operation 'aten.softplus.default' of the package plugins"


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("broken", f"{SOFTPLUS} failed on aten.softplus.default in 1 (Softplus) on 1x4x2x8x8: KeyError: 'beta'"),
        ("nothing", f"{SOFTPLUS}: expected the result of aten.softplus.default in 1 (Softplus) on 1x4x2x8x8, got None"),
        ("other", f"on a random clip, so it is not returned; what took part: {SOFTPLUS}"),
        ("smaller", f"the model (1, 4, 2, 8, 8); what took part: {SOFTPLUS}"),
        ("odd", f"{SOFTPLUS} failed on the rewritten model: TypeError: no such clip"),
    ],
)
def test_a_graph_rule(thing, said, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, rules, RULES, {"aten.softplus.default": thing})
    model = nn.Sequential(nn.Conv3d(3, 4, 1), nn.Softplus()).eval()
    with pytest.raises(HwbenchError) as caught:
        deploy_graph(model, CLIP)
    assert str(caught.value).endswith(said)
    assert "defect of hwbench" not in str(caught.value)


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("stage", ": KeyError: 'no such stage'"),
        ("ends", " on {}: ZeroDivisionError: no ends"),
        ("head", ": TypeError: no head"),
        ("checked", " on {}: IndexError: nothing to check"),
    ],
)
def test_a_family(thing, said, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, families, FAMILIES, {thing: thing})
    file = tmp_path / "odd.toml"
    shipped_one = (shipped() / "search_spaces" / "x3d-tiny.toml").read_text()
    file.write_text(f'family = "{thing}"\n{shipped_one.replace("x3d-tiny", "odd")}')
    with pytest.raises(HwbenchError) as caught:
        read_space(file)
    assert str(caught.value) == f"family '{thing}' of the package plugins failed{said.format(file)}"


def test_a_card_of_a_family(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, families, FAMILIES, {"carded": "carded"})
    card = tmp_path / "x3d-xs" / "model.toml"
    card.parent.mkdir()
    shipped_one = (shipped() / "zoo" / "x3d-xs" / "model.toml").read_text()
    card.write_text(shipped_one.replace('family = "x3d"', 'family = "carded"').replace("[x3d]", "[carded]"))
    with pytest.raises(HwbenchError) as caught:
        read_card(card)
    assert str(caught.value) == f"family 'carded' of the package plugins failed on {card}: AttributeError: no card"


def test_a_decoder_that_cannot_be_made(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, decoders, DECODER, {"odd": "Broken"})
    with pytest.raises(HwbenchError, match=r"^decoder 'odd' of the package plugins failed: RuntimeError: no card$"):
        get_decoder("odd")


@pytest.mark.parametrize(
    ("thing", "given"),
    [
        ("Floats", r"float64 \(3, 16, 16, 3\)"),
        ("First", r"uint8 \(1, 16, 16, 3\)"),
        ("Grey", r"uint8 \(3, 16, 16, 1\)"),
        ("One", r"uint8 \(16, 16, 3\)"),
        ("Nothing", "None"),
    ],
)
def test_a_decoder_whose_frames_are_none(thing, given, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, decoders, DECODER, {"odd": thing})
    write_video(tmp_path / "a.mp4", np.zeros((4, 16, 16, 3), np.uint8), fps=4)
    said = rf"^decoder 'odd' of the package plugins: expected 3 uint8 frames \(T, H, W, 3\) of \S*a\.mp4, got {given}$"
    with get_decoder("odd").open(FileSource(tmp_path / "a.mp4")) as video, pytest.raises(HwbenchError, match=said):
        video.read((2, 0, 2))


@pytest.mark.parametrize(("thing", "given"), [("Low", r"\(3, 8, 24, 3\)"), ("Small", r"\(3, 8, 12, 3\)")])
def test_a_decoder_whose_frames_are_of_another_size(thing, given, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, decoders, DECODER, {"odd": thing})
    write_video(tmp_path / "a.mp4", np.zeros((4, 16, 24, 3), np.uint8), fps=4)
    said = rf"expected frames of 16 x 24 pixels \(height x width\), upright, of \S*a\.mp4, got uint8 {given}$"
    with get_decoder("odd").open(FileSource(tmp_path / "a.mp4")) as video, pytest.raises(HwbenchError, match=said):
        video.read((2, 0, 2))


@pytest.mark.parametrize(("thing", "given"), [("Nameless", "None"), ("Numbered", "1")])
def test_a_decoder_without_an_identity(thing, given, tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, decoders, DECODER, {"odd": thing, "good": "Later"})
    said = f"^decoder 'odd' of the package plugins: expected an identity, its name and version as text, got {given}$"
    with pytest.raises(MissingDependency, match=said):
        get_decoder("odd")
    assert get_decoder("good").identity == "later 1"


def test_an_error_of_our_own_stays_what_it_is():
    things: Registry[Any] = Registry("thing")
    things.register("own")(str)
    with pytest.raises(KeyError, match="ours"), things.blaming(str):
        raise KeyError("ours")
    assert things.origin(str) == ""
