"""int8 with other observers, with blocks in fp32, and after quantisation-aware training."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from small_network import NETWORK, RECIPE
from torch import nn

import hwbench.measure.device_runner
from hwbench import models
from hwbench.api.export import summary
from hwbench.api.export_sources import source_of
from hwbench.data import ClipSpec, TestClips
from hwbench.deploy import (
    MANIFEST,
    BlockQuality,
    CostRecord,
    DeployedModel,
    ExportSource,
    Int8,
    Manifest,
    block_names,
    export,
    meter,
    open_calibration,
    open_validation,
)
from hwbench.deploy.blocks import choices, qualities, require_blocks
from hwbench.deploy.clips import Clips, calibration_inputs
from hwbench.deploy.parity import check_deploy_form, sqnr_db
from hwbench.deploy.source import randomly_weighted
from hwbench.errors import InvalidValue, ParityFailed, UnknownName, UnsupportedModule
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import OBSERVERS, Scheme
from hwbench.runtimes.runners import check_file, python_runner
from hwbench.spaces import load_space
from hwbench.specs import AUTO, Artifact, BlockSpec, DelegationReport, Network, Precision, TensorSpec, Workload
from hwbench.training import Checkpoint, FineTuning, Recipe, build, load_checkpoint, open_data, train
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "manifest"
BLOCKS = ("s1.pathway0_stem_conv_xy", "s1.pathway0_stem_conv", "s2.pathway0_res0", "head")
TUNING = Recipe(epochs=2, batch_size=8, learning_rate=0.005, seed=RECIPE.seed)


@pytest.fixture(scope="module")
def damaged(workspace: Workspace, original: ExportSource) -> ExportSource:
    """The same network in fp32, with one channel of a block 20000 times as large as the others.

    The logits are centred over the validation clips, so that what is seen in a clip decides, and not the bias.
    """
    module = copy.deepcopy(original.module)
    layers = module.get_submodule("s2.pathway0_res0.layers")
    with torch.no_grad():
        norm = layers.get_submodule("conv_0.kernel.bn")
        norm.weight[0], norm.bias[0] = 20000.0, 20000.0
        layers.get_submodule("conv_1.kernel.conv").weight[0] /= 20000.0
        views = [view for _, view in open_validation(workspace, "synthetic", original).views()]
        module.get_submodule("projection.model").bias -= torch.cat([module(view) for view in views]).mean(0)
    return replace(original, module=module)


@pytest.fixture(scope="module")
def calibration(workspace: Workspace, original: ExportSource) -> Clips:
    return open_calibration(workspace, "synthetic", original, count=6, seed=5)


@pytest.fixture(scope="module")
def inputs(calibration: Clips) -> list[torch.Tensor]:
    return calibration_inputs(calibration, lambda done, all: None)


def deployed(original: ExportSource) -> nn.Module:
    return models.deployed(original.module, original.network.input)


def observed(original: ExportSource, inputs: Sequence[torch.Tensor], scheme: Scheme) -> torch.fx.GraphModule:
    with quiet():
        from hwbench.runtimes.executorch.quantize import observed

        return observed(deployed(original), inputs[0], inputs, scheme)


def test_observers_find_ranges_of_their_own(original: ExportSource, inputs: list[torch.Tensor]) -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import converted, observers
    logits = {}
    for name in OBSERVERS:
        graph = observed(original, inputs, Scheme(name))
        widths = [observer.max_val - observer.min_val for _, observer in observers(graph)]
        assert all(bool((width >= 0).all()) for width in widths)
        with quiet(), torch.no_grad():
            logits[name] = converted(graph)(inputs[0])
    with torch.no_grad():
        exact = deployed(original)(inputs[0])
    assert all(sqnr_db(exact, found) > 15 for found in logits.values())
    assert not torch.equal(logits["minmax"], logits["moving-average"])
    with pytest.raises(UnknownName, match="did you mean 'histogram'"):
        Scheme("histogramm")


def test_rounding_in_chosen_blocks_is_what_the_quantised_graph_does(
    damaged: ExportSource, inputs: list[torch.Tensor]
) -> None:
    graph, x = observed(damaged, inputs, Scheme()), inputs[1]
    with quiet():
        from hwbench.runtimes.executorch.quantize import converted, quantized
        from hwbench.runtimes.executorch.rounding import Rounding
    module = deployed(damaged)
    names = block_names(module)
    assert names == BLOCKS
    rounding = Rounding(graph, names)
    with quiet(), torch.no_grad():
        everything, exact = converted(copy.deepcopy(graph))(x), module(x)
        mixed = {name: quantized(module, x, inputs, Scheme(fp32_blocks=(name,)))(x) for name in names}
    assert torch.equal(rounding(x), everything)
    for spared, logits in mixed.items():
        rounding.choose([name for name in names if name != spared])
        assert torch.equal(rounding(x), logits), spared
    assert sqnr_db(exact, mixed["s2.pathway0_res0"]) > sqnr_db(exact, everything) + 3
    rounding.choose(())
    assert torch.equal(rounding(x), exact)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nonsense",
            "known: head, head.act, head.pool, head.projection, s1, s1.pathway0_stem_conv, s1.",
        ),
        ("s2.pathway0_res9", "did you mean 's2.pathway0_res0'? known: s2.pathway0_res0"),
        (
            "head.pool.linn_5",
            "known: head.pool.avg_pool, head.pool.conv_5, head.pool.lin_5",
        ),
    ],
)
def test_an_unknown_block_is_answered_with_those_it_may_mean(
    name: str, said: str, original: ExportSource, inputs: list[torch.Tensor]
) -> None:
    with pytest.raises(UnknownName) as error:
        observed(original, inputs, Scheme(fp32_blocks=(name,)))
    assert said in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("spared", BLOCKS[1:])
def test_nothing_inside_a_block_in_fp32_is_rounded(
    spared: str, original: ExportSource, inputs: list[torch.Tensor]
) -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import block_of, observers

    def rounded_inside(scheme: Scheme) -> list[str]:
        graph = observed(original, inputs, scheme)
        names = {name for name, _ in observers(graph)}
        rounded = [node for node in graph.graph.nodes if node.target in names]
        around = {node: [*node.all_input_nodes, *node.users] for node in rounded}
        return [n.name for n, near in around.items() if {block_of(each, BLOCKS) for each in near} == {spared}]

    assert rounded_inside(Scheme())
    assert not rounded_inside(Scheme(fp32_blocks=(spared,)))


def test_a_block_that_int8_damages_is_found_and_left_in_fp32(
    workspace: Workspace, damaged: ExportSource, calibration: Clips, inputs: list[torch.Tensor]
) -> None:
    with quiet():
        from hwbench.runtimes.executorch.rounding import Rounding
    rounding = Rounding(observed(damaged, inputs, Scheme()), BLOCKS)
    found = qualities(rounding, inputs, lambda done, all: None)
    assert [quality.name for quality in found] == list(BLOCKS)
    assert min(found, key=lambda quality: quality.alone_db).name == "s2.pathway0_res0"
    by_name = {quality.name: quality for quality in found}
    assert by_name["s1.pathway0_stem_conv"].sqnr_db > by_name["s2.pathway0_res0"].sqnr_db + 10
    validation = _labelled_by(damaged, open_validation(workspace, "synthetic", damaged))
    asked: list[tuple[Artifact, Artifact]] = []

    def timed(int8: Artifact, mixed: Artifact) -> CostRecord:
        asked.append((int8, mixed))
        assert int8.path.read_bytes() != mixed.path.read_bytes()
        return CostRecord("local", 2.0, 2.5)

    result = export(
        damaged,
        workspace.root / "kept",
        precision=Precision.INT8,
        calibration=calibration,
        validation=validation,
        int8=Int8(max_loss=0.0),
        meter=timed,
    )
    how, accuracy = result.manifest.quantization, result.manifest.accuracy
    assert how is not None
    assert "s2.pathway0_res0" in how.fp32_blocks
    assert len(how.fp32_blocks) <= 2, "the file may need one more than the simulation"
    assert how.cost is not None
    assert how.cost.difference_ms == pytest.approx(0.5)
    assert len(asked) == 1
    assert how.top1_int8 is not None
    assert how.top1_int8 < 1.0 == accuracy.top1_before == accuracy.top1_after
    assert result.manifest.delegation == DelegationReport(1)
    assert result.manifest.parity.sqnr_db > 12  # of int8 in all blocks: below 6
    assert sorted(path.name for path in result.path.parent.iterdir()) == ["RUN.md", MANIFEST, "model.pte"]
    assert Manifest.read(result.path.with_name(MANIFEST)) == result.manifest


def test_blocks_stay_in_fp32_until_the_file_is_near_the_original_also_where_any_top1_will_do(
    workspace: Workspace, damaged: ExportSource, calibration: Clips
) -> None:
    validation = open_validation(workspace, "synthetic", damaged)
    result = export(
        damaged,
        workspace.root / "near",
        precision=Precision.INT8,
        calibration=calibration,
        validation=validation,
        int8=Int8(max_loss=1.0),
    )
    how = result.manifest.quantization
    assert how is not None
    assert how.fp32_blocks[:1] == ("s2.pathway0_res0",)
    assert result.manifest.parity.sqnr_db > 10  # of int8 in all blocks: below 6


def _labelled_by(original: ExportSource, clips: Clips) -> Clips:
    """The clips with what the original sees in them as labels, so that every change of top-1 is a loss.

    Only the half that it is surest of: of the others any rounding changes what is seen, and not that of one block.
    """
    with torch.inference_mode():
        logits = torch.cat([original.module(view) for _, view in clips.views()])
    best = logits.topk(2, dim=1)
    margins = best.values[:, 0] - best.values[:, 1]
    kept = sorted(margins.argsort(descending=True)[: len(margins) // 2].tolist())
    videos = clips.dataset.videos
    labels = tuple(int(best.indices[index, 0]) for index in kept)
    chosen = replace(videos.subset(kept), labels=labels)
    old = clips.dataset
    return replace(clips, dataset=TestClips(chosen, old.clip, old.transform, clips=old.clips, policy=old.policy))


@pytest.mark.parametrize(
    ("needed", "tried"),
    [
        ((), [()]),
        (("b",), [("b",)]),
        (("a",), [("a",)]),
        (("a", "c"), [("a", "c")]),
        (("a", "b", "c"), [("a", "b", "c")]),
    ],
)
def test_the_most_sensitive_go_first_and_what_is_not_needed_is_put_back(
    needed: tuple[str, ...], tried: list[tuple[str, ...]]
) -> None:
    class Blocks:
        blocks = ("a", "b", "c")
        rounds: tuple[str, ...] = blocks

        def choose(self, names: Sequence[str]) -> None:
            self.rounds = tuple(names)

    rounding = Blocks()
    found = [BlockQuality("a", 0.0, 20.0), BlockQuality("b", 0.0, 10.0), BlockQuality("c", 0.0, 30.0)]
    plans = choices(rounding, found, lambda: float(not set(needed) & set(rounding.rounds)), 1.0)  # type: ignore[arg-type]
    plans = [*plans]
    assert plans[0] == tried[0]
    assert [len(plan) for plan in plans] == [*range(len(needed), 4)], "then one more each, until all are in fp32"


def test_what_a_limit_needs_is_asked_for(
    workspace: Workspace, original: ExportSource, calibration: Clips, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match="labelled validation"):
        export(original, tmp_path, precision=Precision.INT8, calibration=calibration, int8=Int8(max_loss=0.01))
    validation, network = open_validation(workspace, "synthetic", original, count=2), original.network
    foreign = replace(original, network=network.with_classes(5), classes=())
    with pytest.raises(InvalidValue, match="the weights have 5 classes without names, synthetic has 8"):
        export(
            foreign,
            tmp_path,
            precision=Precision.INT8,
            calibration=calibration,
            validation=validation,
            int8=Int8(max_loss=0.01),
        )
    with pytest.raises(UnknownName, match=r"did you mean 's2\.pathway0_res0'"):
        export(
            original,
            tmp_path,
            precision=Precision.INT8,
            calibration=calibration,
            int8=Int8(fp32_blocks=("s2.pathway0_res1",)),
        )
    with pytest.raises(InvalidValue, match="either name the blocks"):
        Int8(fp32_blocks=("head",), max_loss=0.01)
    with pytest.raises(InvalidValue, match="from 0 to 1"):
        Int8(max_loss=2.0)


@pytest.mark.long
def test_the_cost_is_measured_or_the_reason_is_told(
    workspace: Workspace, int8: DeployedModel, fp32: DeployedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hwbench.measure.device_runner, "choose_runner", lambda *_: python_runner())
    workload = NETWORK.workload(Precision.INT8)
    files = [
        Artifact(m.path, m.manifest.sha256, workload, "executorch", "1", DelegationReport(1)) for m in (int8, fp32)
    ]
    measure = meter(workspace)
    cost = measure(*files)
    assert cost.device == "local"
    assert cost.reason is None
    assert cost.int8_ms
    assert cost.mixed_ms
    broken = replace(files[1], path=int8.path.with_name(MANIFEST))
    told = measure(files[0], broken)
    assert told.difference_ms is None
    assert told.reason


@pytest.fixture(scope="module")
def tuned(workspace: Workspace, checkpoint: Path) -> Checkpoint:
    """The small network after two epochs with the rounding of int8 in it, interrupted in between."""
    return fine_tune(workspace, checkpoint, "tuned", 4)


def fine_tune(
    workspace: Workspace,
    checkpoint: Path,
    out: str,
    stop: int | None = None,
    variant: str = AUTO,
    recipe: Recipe = TUNING,
) -> Checkpoint:
    data = open_data(workspace, "synthetic", (4, 16, 16), TUNING)

    def interrupt(at: object) -> None:
        if getattr(at, "step", 0) == stop:
            raise KeyboardInterrupt

    folder, start = workspace.root / out, FineTuning.of(checkpoint, variant)
    if stop is not None:
        with pytest.raises(KeyboardInterrupt):
            train(recipe, NETWORK, data, folder, start=start, progress=interrupt)
    return train(recipe, NETWORK, data, folder, start=start).checkpoint


def test_training_with_rounding_goes_on_bit_for_bit(workspace: Workspace, checkpoint: Path, tuned: Checkpoint) -> None:
    at_once = fine_tune(workspace, checkpoint, "at-once")
    assert at_once.metrics["steps"] == 6
    ours, theirs = load_checkpoint(tuned.path)[1], load_checkpoint(at_once.path)[1]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    before = load_checkpoint(checkpoint)[1]
    assert all(torch.equal(ours[f"start.{name}"], tensor) for name, tensor in before.items())


def test_training_with_rounding_stopped_before_its_first_validation_goes_on_bit_for_bit(
    workspace: Workspace, checkpoint: Path
) -> None:
    """Validation loads weights, and so does a run that goes on; both leave the smallest scale as it is."""
    rarely = replace(TUNING, eval_every=2)
    stopped, at_once, seldom = (
        load_checkpoint(fine_tune(workspace, checkpoint, f"scales-{number}", stop, recipe=recipe).path)[1]
        for number, (stop, recipe) in enumerate(((1, TUNING), (None, TUNING), (None, rarely)))
    )
    for weights in (stopped, seldom):
        assert all(torch.equal(weights[name], tensor) for name, tensor in at_once.items())
    smallest = [tensor for name, tensor in at_once.items() if name.endswith(".eps")]
    assert smallest
    assert all(tensor.item() == 2**-12 for tensor in smallest)


def test_loading_weights_keeps_the_smallest_scale(tuned: Checkpoint) -> None:
    weights = {name: tensor for name, tensor in load_checkpoint(tuned.path)[1].items() if not name.startswith("start.")}
    module = build(*load_checkpoint(tuned.path))
    small = {
        name: tensor * 1e-6 if name.endswith((".min_val", ".max_val")) else tensor for name, tensor in weights.items()
    }
    before = {
        name: torch.full_like(tensor, 1e-7) if name.endswith(".eps") else tensor for name, tensor in small.items()
    }
    for state in (small, before):  # the latter as checkpoints had it once
        module.load_state_dict(dict(state))
        scales = [tensor for name, tensor in module.eval().state_dict().items() if name.endswith((".scale", ".eps"))]
        assert scales
        assert all(bool((tensor >= 2**-12).all()) for tensor in scales)


def test_a_checkpoint_with_rounding_is_what_its_file_computes(
    workspace: Workspace, checkpoint: Path, tuned: Checkpoint, original: ExportSource
) -> None:
    again = source_of(tuned.path)
    assert again.fine_tuned is not None
    x = torch.randn(3, *NETWORK.input.shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        rounded = again.module(x)
        converted = torch.cat([again.fine_tuned.converted()(models.frames_to_batch(clip)) for clip in x.split(1)])
        start = again.fine_tuned.start(x)
        assert torch.equal(start, original.module(x))
    assert sqnr_db(rounded, converted) > 30
    assert 3 < sqnr_db(start, rounded) < 40, "weights moved, and it is still the same network"
    validation = open_validation(workspace, "synthetic", again)
    result = export(again, workspace.root / "aware", precision=Precision.INT8, validation=validation)
    how, accuracy = result.manifest.quantization, result.manifest.accuracy
    assert how is not None
    assert (how.method, how.observer, result.manifest.calibration) == ("qat", None, None)
    parity, views = result.manifest.parity, [view for _, view in validation.views()]
    with torch.inference_mode():
        start, rounded = (torch.cat([m(view) for view in views]) for m in (again.fine_tuned.start, again.module))
    # Against what the training started from, and against what it made.
    assert parity.sqnr_db == pytest.approx(sqnr_db(start.double(), rounded.double()), abs=1)
    assert parity.rounding_sqnr_db is not None
    assert parity.rounding_sqnr_db > 30 > parity.sqnr_db
    assert Manifest.read(result.path.with_name(MANIFEST)) == result.manifest
    assert summary(result)["rounding_sqnr_db"] == round(parity.rounding_sqnr_db, 2)
    assert accuracy.top1_before == pytest.approx(_top1(original, validation))
    assert accuracy.top1_after == pytest.approx(_top1(again, validation), abs=0.07)
    assert check_file(result.path).output.shape == (1, 8)
    ordinary = torch.load(checkpoint, weights_only=True)["schema"]
    assert (ordinary, torch.load(tuned.path, weights_only=True)["schema"]) == (1, 2)


def _top1(original: ExportSource, clips: Clips) -> float:
    labels = clips.dataset.videos.labels
    with torch.inference_mode():
        right = [int(original.module(view).argmax()) == labels[video] for video, view in clips.views()]
    return sum(right) / len(right)


def test_what_does_not_go_with_rounding_is_refused(
    workspace: Workspace, checkpoint: Path, tuned: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match="give the one it started from"):
        FineTuning.of(tuned.path)
    again = source_of(tuned.path)
    settled = [Int8(fp32_blocks=("head",)), Int8(observer="minmax"), Int8(inspect=True)]
    for options in ({"precision": Precision.FP32}, {"variant": "one-hot"}, *({"int8": one} for one in settled)):
        with pytest.raises(InvalidValue, match="it started from"):
            export(again, tmp_path / "out", **({"precision": Precision.INT8} | options))
    data = open_data(workspace, "synthetic", (4, 16, 16), TUNING)
    with pytest.raises(InvalidValue, match="fp32"):
        train(replace(TUNING, precision="bf16"), NETWORK, data, tmp_path / "bf16", start=FineTuning.of(checkpoint))
    moved, weights = load_checkpoint(tuned.path)
    weights.pop("graph.head.projection.bias")
    with pytest.raises(Exception, match="weights of another network"):
        build(moved, weights)


def test_the_manifest_says_the_layout_that_the_network_was_trained_in(workspace: Workspace, checkpoint: Path) -> None:
    again = source_of(fine_tune(workspace, checkpoint, "one-hot", variant="one-hot").path)
    made = export(again, workspace.root / "one-hot" / "int8", precision=Precision.INT8)
    assert made.manifest.variant == "one-hot"
    assert DeployedModel.open(made.path.parent).manifest.variant == "one-hot"


def test_every_parity_report_has_its_numbers(int8: DeployedModel, fp32: DeployedModel) -> None:
    for parity in (int8.manifest.parity, fp32.manifest.parity):
        assert parity.fp64_error is not None
        assert parity.fp64_error < 1e-10 < parity.deploy_form_error < 1e-4
        assert parity.mean_abs_error is not None
        assert 0 < parity.mean_abs_error < parity.max_abs_error
    assert int8.manifest.parity.mean_abs_error > fp32.manifest.parity.mean_abs_error


def test_a_rewrite_that_is_wrong_by_little_is_seen_in_double_precision(original: ExportSource) -> None:
    def wrong(module: nn.Module) -> nn.Module:
        made = models.deployed(module, original.network.input)
        made.head.projection.weight.data *= 1 + 1e-5
        return made

    with pytest.raises(ParityFailed, match="double precision"):
        check_deploy_form(original.module, wrong, torch.randn(NETWORK.input.shape))


def test_manifests_of_before_are_read(tmp_path: Path) -> None:
    manifest = Manifest.read(GOLDEN / "schema-1.json")
    assert manifest.quantization is not None
    assert (manifest.quantization.method, manifest.quantization.fp32_blocks) == ("ptq", ())
    assert manifest.parity.fp64_error is None
    values = json.loads((GOLDEN / "schema-1.json").read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**values, "precision": "fp32", "calibration": None}))
    assert Manifest.read(tmp_path / MANIFEST).quantization is None


def test_int8_leaves_normalisation_and_attention_in_fp32() -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import kept_in_float
    one = Workload.parse("multiscale_i8_m8_d16_o8_k3x3x3_kv2_gelu@1x8x2x4x4/int8/auto")
    module, _ = models.workload_module(one)
    kept = {type(module.get_submodule(name)).__name__ for name in kept_in_float(module)}
    assert kept == {"LayerNorm", "Attention"}
    assert len(kept_in_float(module)) == 5  # before attention and linear layers, behind the pooling of keys and values


@pytest.mark.parametrize(
    ("space", "by_block"),
    [
        ("x3d-mobile", True),
        ("e3d-mobile", True),
        ("squeeze-mobile", True),
        ("mvit-mobile", True),
        ("slow-mobile", False),
        ("r2plus1d-mobile", False),
        ("i3d-mobile", False),
        ("csn-mobile", False),
        ("slowfast-mobile", False),
    ],
)
def test_what_is_said_of_blocks_before_the_deploy_form_is_what_it_has(
    space: str, by_block: bool, tmp_path: Path
) -> None:
    candidates = load_space(Workspace(ROOT), space)
    network = candidates.network(next(iter(candidates.architectures())), 8)
    small = replace(network, input=network.input.with_(h=32, w=32))
    source = randomly_weighted(small, ClipSpec(frames=small.input.t, stride=1))
    if by_block:
        require_blocks(source)
        assert len(block_names(source.deployed())) >= len(network.blocks)
        return
    with pytest.raises(UnsupportedModule, match="is no chain of blocks: --keep-accuracy and --blocks are for X3D"):
        block_names(source.deployed())
    unread = Clips("synthetic", "train", 0, cast("TestClips", None))
    asked = {"precision": Precision.INT8, "calibration": unread, "validation": unread}
    with pytest.raises(UnsupportedModule, match=r"is deployed as one graph without blocks: .* or name operations"):
        export(source, tmp_path / "out", int8=Int8(inspect=True), **asked)  # type: ignore[arg-type]


def test_the_blocks_of_an_mvit_are_looked_at() -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import observed
        from hwbench.runtimes.executorch.rounding import Rounding
    keys = (
        "token-stem_i3_o8_k3x5x5_s4_ts2_pf2_ps4_identity",
        "multiscale_i8_m8_d16_o8_k3x3x3_nh2_gelu",
        "token-head_i8_o5_kglobal_identity",
    )
    network = Network("mvit", tuple(map(BlockSpec.parse, keys)), TensorSpec(1, 3, 4, 16, 16))
    module = models.deployed(models.network(network).eval(), network.input)
    clips = [torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    names = block_names(module)
    assert names == ("block_0", "block_1", "block_2")
    rounding = Rounding(observed(module, clips[0], clips, Scheme()), names)
    found = qualities(rounding, clips, lambda done, all: None)
    assert [quality.name for quality in found] == list(names)
    assert all(5 < quality.alone_db < 100 for quality in found)
