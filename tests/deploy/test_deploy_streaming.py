"""24: an exported stream is checked, says its states, runs by its own page, and is timed with them."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hwbench.cli.commands  # registers the commands
import hwbench.deploy.verification
import hwbench.measure.device_runner
from hwbench.cli.main import main
from hwbench.data import ClipSpec, VideoInfo, uniform_clips
from hwbench.deploy import MANIFEST, MODEL, DeployedModel, Int8, Streaming, block_names, export, randomly_weighted
from hwbench.deploy.clips import open_calibration, open_validation
from hwbench.deploy.file_names import RUN
from hwbench.deploy.manifest import Manifest
from hwbench.deploy.manifest_records import StreamRecord
from hwbench.deploy.model_process import served
from hwbench.deploy.parity import relative_error
from hwbench.deploy.run_page import run_page
from hwbench.deploy.streams import StreamInputs
from hwbench.deploy.verification import stream_frames
from hwbench.errors import InvalidValue, MissingDependency, UnknownName, UnsupportedModule, VideoError
from hwbench.interpreter import python_path
from hwbench.models import streamed
from hwbench.runtimes import Capabilities, get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import Scheme
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.pte_model import engine, pte_layout
from hwbench.runtimes.runners import CheckResult, Runner, check_file, python_runner
from hwbench.specs import STREAM, Network, Precision, TensorSpec
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem
from hwbench.testing.run_pages import build_page_program, frames_of_page, page_programs
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
SIZE, FRAMES = 32, 4
pytest.importorskip("executorch")


def network() -> Network:
    blocks = [x3d_stem(8)]
    blocks += x3d_stage(8, depth=2, width=8, expansion=2.0, kernel=((3, 3, 3),), se=0.5, act="swish", stride=2)
    blocks.append(x3d_head(8, 16, 16, 5))
    return Network("small", tuple(blocks), TensorSpec(1, 3, FRAMES, SIZE, SIZE))


def source(net: Network | None = None):  # type: ignore[no-untyped-def]
    return randomly_weighted(net or network().causal(), ClipSpec(FRAMES, stride=1))


@pytest.fixture(
    scope="module",
    params=["fp32", pytest.param("fp16", marks=pytest.mark.long), pytest.param("int8", marks=pytest.mark.long)],
)
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DeployedModel:
    folder, precision = tmp_path_factory.mktemp(request.param), Precision.parse(request.param)
    original, calibration = source(), None
    if precision is Precision.INT8:
        calibration = open_calibration(Workspace.find(), "synthetic", original, count=4)
    made = export(original, folder / "out", precision=precision, calibration=calibration, streaming=Streaming())
    assert DeployedModel.open(folder / "out") == made
    return made


def test_file_is_one_delegate_and_equals_the_clip_network(stream: DeployedModel) -> None:
    manifest = stream.manifest
    assert (manifest.delegation.delegates, manifest.delegation.undelegated) == (1, {})
    assert manifest.variant == STREAM
    assert manifest.input.shape == (1, 3, SIZE, SIZE)
    assert manifest.calibration is None or manifest.calibration.clips == 4
    bound = {Precision.FP32: 100, Precision.FP16: 40, Precision.INT8: 3}[manifest.precision]
    assert manifest.parity.sqnr_db >= bound


def test_manifest_names_the_states_in_the_order_of_inputs(stream: DeployedModel) -> None:
    record = stream.manifest.stream
    assert record is not None
    form = streamed(source().module, network().input)
    assert [(state.name, state.shape) for state in record.states] == [(s.name, s.shape) for s in form.states]
    assert {state.initial for state in record.states} == {0.0}
    assert {state.memory for state in record.states} == {"NHWC", "NCHW"}
    averages = {state.name for state in record.states if state.shape[2:] == (1, 1)}
    assert {state.dtype for state in record.states if state.name in averages} == {"float32"}
    delayed = {Precision.FP32: "float32", Precision.FP16: "float16", Precision.INT8: "int8"}[stream.manifest.precision]
    assert {state.dtype for state in record.states if state.name not in averages} == {delayed}
    inside = [one.dtype.name for one in pte_layout(stream.path).inputs]
    assert inside == ["float32", *(state.dtype for state in record.states)]


def test_manifest_of_before_is_read(stream: DeployedModel) -> None:
    values = json.loads((stream.path.parent / MANIFEST).read_text())
    path = stream.path.parent / "before.json"
    for state in values["stream"]["states"]:
        del state["dtype"]
    path.write_text(json.dumps(values))
    assert Manifest.read(path).stream == replace(
        stream.manifest.stream, states=tuple(replace(s, dtype="float32") for s in stream.manifest.stream.states)
    )
    del values["stream"]
    clip = TensorSpec.parse(stream.manifest.architecture.input).folded  # what files took then
    values["input"]["shape"] = clip
    path.write_text(json.dumps(values))
    given = replace(stream.manifest.input, shape=clip)
    assert Manifest.read(path) == replace(stream.manifest, stream=None, input=given)


def test_served_stream_begins_anew_behind_its_window(stream: DeployedModel) -> None:
    frames = np.random.default_rng(0).standard_normal((FRAMES, 3, SIZE, SIZE)).astype(np.float32)
    with served(stream.path, window=FRAMES) as anew, served(stream.path) as endless:
        first = anew.replay(frames)
        np.testing.assert_array_equal(anew.replay(frames), first)
        np.testing.assert_array_equal(endless.replay(frames), first)
        assert not np.array_equal(endless.replay(frames), first)


def test_both_runners_hand_the_states_on(stream: DeployedModel, tmp_path: Path) -> None:
    frames = np.random.default_rng(1).standard_normal((3, 3, SIZE, SIZE)).astype(np.float32)
    with served(stream.path) as file:
        expected = np.concatenate(file.answers(frames))
    assert check_file(stream.path, frames, runner=python_runner()).output.tolist() == expected.tolist()
    try:
        native = Runner("native", (str(build_runner(tmp_path)),))
    except MissingDependency as error:
        pytest.skip(str(error))
    np.testing.assert_allclose(check_file(stream.path, frames, runner=native).output, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames as the programs of the page read them: two windows and one more, ever darker, so that what a window
    remembers is seen in the largest logit of int8 as well.
    """
    path = tmp_path_factory.mktemp("film") / "frames.rgb"
    noise = np.random.default_rng(2).integers(0, 256, (2 * FRAMES + 1, SIZE, SIZE, 3))
    (noise * np.linspace(1, 0.1, len(noise))[:, None, None, None]).astype(np.uint8).tofile(path)
    return path


def expected_answers(model: DeployedModel, film: Path, window: int) -> np.ndarray:
    """Logits behind each frame, normalised by what the manifest says."""
    form = model.manifest.input
    pixels = np.fromfile(film, dtype=np.uint8).reshape(-1, SIZE, SIZE, 3)
    values = (pixels / np.float32(form.value_scale) - np.float32(form.mean)) / np.float32(form.std)
    with served(model.path, window=window) as file:
        return np.concatenate(file.answers(values.transpose(0, 3, 1, 2).astype(np.float32)))


def assert_printed(words: list[str], folder: Path, answers: np.ndarray) -> None:
    """A line for each answer: the number of a logit that no other one exceeds, and the logit."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    numbers, largest = [int(number) for number, _ in lines], [float(logit) for _, logit in lines]
    np.testing.assert_allclose(largest, answers.max(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[range(len(answers)), numbers], largest, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_python_program_of_the_page_prints_an_answer_for_each_frame(
    stream: DeployedModel, film: Path, tmp_path: Path
) -> None:
    page = (stream.path.parent / RUN).read_text()
    assert not re.search(r"@[A-Z_]+@", page)
    (program,) = page_programs(page, "python")
    (tmp_path / "run.py").write_text(program)
    manifest = str(stream.path.parent / MANIFEST)
    words = [sys.executable, "-W", "ignore", "run.py", str(stream.path), str(film), manifest, str(FRAMES)]
    assert_printed(words, tmp_path, expected_answers(stream, film, FRAMES))
    refused = subprocess.run([*words[:-1], "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.endswith("WINDOW: expected a whole number of frames, at least 1, got '0'\n")
    assert "Traceback" not in refused.stderr


@pytest.mark.long
def test_python_program_of_a_runtime_without_a_page_of_streams_prints_the_same(
    stream: DeployedModel, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_class = type(get("executorch"))
    bare = replace(engine_class.capabilities, stream_page=Capabilities.stream_page)
    monkeypatch.setattr(engine_class, "capabilities", bare)
    page = run_page(stream.manifest)
    assert not re.search(r"@[A-Z_]+@", page)
    assert "#include" not in page
    assert "pip install /path/to/hwbench`" in page
    (program,) = page_programs(page, "python")
    (tmp_path / "run.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", python_path())
    words = [sys.executable, "-W", "ignore", "run.py", str(stream.path), str(film)]
    assert_printed(words, tmp_path, expected_answers(stream, film, 0))
    assert_printed([*words, str(FRAMES)], tmp_path, expected_answers(stream, film, FRAMES))
    refused = subprocess.run([*words, "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.endswith("WINDOW: expected a whole number of frames, at least 1, got '0'\n")


def test_the_command_of_the_page_takes_each_frame_once(stream: DeployedModel, tmp_path: Path) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg: apt-get install ffmpeg")
    page = (stream.path.parent / RUN).read_text()
    assert len(frames_of_page(page, tmp_path, 3 * SIZE * SIZE)) == 18


def test_cpp_program_of_the_page_compiles_and_prints_what_python_computes(
    stream: DeployedModel, film: Path, tmp_path: Path
) -> None:
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler: apt-get install g++")
    page = (stream.path.parent / RUN).read_text()
    build_page_program(page, tmp_path, "-O0 -Wall -Wextra -Werror")
    endless, anew = (expected_answers(stream, film, window) for window in (0, FRAMES))
    assert not np.allclose(endless[FRAMES:].max(1), anew[FRAMES:].max(1), rtol=1e-3)
    assert_printed(["./run", str(stream.path), str(film)], tmp_path, endless)
    assert_printed(["./run", str(stream.path), str(film), str(FRAMES)], tmp_path, anew)
    (tmp_path / "torn.rgb").write_bytes(film.read_bytes()[:-1])
    for words, status, said in (
        ([str(stream.path)], 2, "usage: ./run model.pte frames.rgb [WINDOW]"),
        ([str(stream.path), "torn.rgb"], 2, f"torn.rgb: no whole frames of {SIZE} x {SIZE}"),
        ([str(stream.path), "none.rgb"], 2, "none.rgb: no whole frames"),
        (["run.cpp", str(film)], 1, "run.cpp does not load"),
        *(
            (
                [str(stream.path), str(film), window],
                2,
                f"WINDOW: expected a whole number of frames, at least 1, got '{window}'",
            )
            for window in ("abc", "4x", "1.5", "0", "-4", "")
        ),
    ):
        done = subprocess.run(["./run", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (status, True), done.stderr


def test_page_takes_frames_as_far_apart_as_clips_have_them(stream: DeployedModel) -> None:
    def page(clip: ClipSpec) -> str:
        return run_page(replace(stream.manifest, input=replace(stream.manifest.input, clip=clip)))

    assert '-vf "crop=' in page(ClipSpec(FRAMES, stride=1))
    assert "middle" not in page(ClipSpec(FRAMES, stride=1))
    assert '-vf "framestep=5,crop=' in page(ClipSpec(FRAMES, stride=5))
    assert "trained on: 4 of them in 2 s." in page(ClipSpec(FRAMES, span_s=2))
    assert '-vf "fps=2,crop=' in page(ClipSpec(FRAMES, span_s=2))
    assert '-vf "fps=6,crop=' in page(ClipSpec(FRAMES, stride=4, convention="pyslowfast", target_fps=30))
    assert '-vf "crop=' in page(ClipSpec(FRAMES, convention="segments"))


@pytest.mark.parametrize(
    ("clip", "apart"),
    [
        (ClipSpec(4, stride=12, convention="pytorchvideo", target_fps=30), "1.6 s, {ends}, 0.522 s apart"),
        (ClipSpec(16, stride=5, convention="pyslowfast-offset", target_fps=30), "2.66667 s, {ends}, 0.176 s apart"),
        (ClipSpec(8, span_s=2.1, convention="pytorchvideo"), "2.1 s, {ends}, 0.295 s apart"),
        (ClipSpec(4, stride=12, convention="pyslowfast"), "48 frames, {ends}, 15.7 frames apart"),
        (ClipSpec(4, stride=12, convention="mmaction2"), "each 12 after the one before"),
        (ClipSpec(4, stride=12, target_fps=30), "evenly over 1.6 s, by"),
        (ClipSpec(1, stride=12, convention="pytorchvideo", target_fps=30), "evenly over 0.4 s, by"),
    ],
)
def test_page_takes_frames_as_far_apart_as_the_convention_does(
    stream: DeployedModel, clip: ClipSpec, apart: str
) -> None:
    text = run_page(replace(stream.manifest, input=replace(stream.manifest.input, clip=clip)))
    assert apart.format(ends="first and last frame of the window included") in text
    video = VideoInfo(64, 64, "raw", Fraction(1, 30), np.arange(3000), (0,), 3000)
    chosen = uniform_clips(video, clip, 1)[0]
    name, value = text.split('-vf "')[1].partition(",")[0].split("=")
    step = 30 / float(value) if name == "fps" else int(value)
    if clip.frames > 1:
        assert (chosen[-1] - chosen[0]) / (clip.frames - 1) == pytest.approx(step, abs=0.5 if name != "fps" else 1e-3)


def test_page_and_guide_say_how_a_stream_runs_on_android(stream: DeployedModel) -> None:
    line = "On Android run it by the C++ program through the NDK; the Java API takes neither"
    assert line in (stream.path.parent / RUN).read_text()
    assert line in (ROOT / "docs" / "guides" / "streaming.md").read_text()


def test_what_cannot_be_streamed_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    ask = {"out": tmp_path / "out", "precision": Precision.FP32, "streaming": Streaming()}
    with pytest.raises(UnsupportedModule, match="hwbench train NETWORK --causal"):
        export(source(network()), **ask)
    with pytest.raises(UnsupportedModule, match="builds no streams; choose another engine: --runtime executorch"):
        export(source(), runtime=get("torchscript"), **ask)
    with pytest.raises(InvalidValue, match="leave out --variant"):
        export(source(), variant="stacked", **ask)
    with pytest.raises(InvalidValue, match=f"--memory: expected at least {FRAMES}, .* got {FRAMES - 1}"):
        export(source(), tmp_path / "out", precision=Precision.FP32, streaming=Streaming(memory=FRAMES - 1))
    assert not (tmp_path / "out").exists()


def test_blocks_of_a_stream_stay_in_fp32_by_the_names_that_they_have_in_a_clip() -> None:
    with quiet():
        from hwbench.runtimes.executorch.quantize import block_of, observed, observers
    original = source()
    form, names = streamed(original.module, original.network.input), block_names(original.deployed())
    inputs = StreamInputs(form, [torch.randn(FRAMES, 3, SIZE, SIZE)])[:]

    def rounded_in(block: str, *kept: str) -> int:
        """Values of a block that become int8."""
        with quiet():
            graph = observed(form, inputs[0], inputs, Scheme(fp32_blocks=kept))
        targets = {name for name, _ in observers(graph)}
        rounded = [node for node in graph.graph.nodes if node.target in targets]
        blocks = [f"step.{name}" for name in names]
        around = ({block_of(each, blocks) for each in (*node.all_input_nodes, *node.users)} for node in rounded)
        return sum(found == {f"step.{block}"} for found in around)

    assert "head" in names
    assert rounded_in("head") > 0
    assert [rounded_in("head", *names), rounded_in("head", "head"), rounded_in("head", "step.head")] == [0, 0, 0]
    for wrong in ("count", "step", "heda"):  # a stream counts its frames, in no block
        with pytest.raises(UnknownName, match=f"no block '{wrong}' to keep in fp32; .*known: head, ") as error:
            rounded_in("head", wrong)
        assert not re.search(r"step\b.*|count\b.*", str(error.value).partition("known: ")[2])
    words = "as --blocks prints them without --streaming"
    ask = {"precision": Precision.FP32, "streaming": Streaming(), "int8": Int8(inspect=True)}
    with pytest.raises(InvalidValue, match=words):
        export(original, Path("nowhere"), **ask)


def test_memory_stands_in_the_manifest_and_the_file_counts_no_further(tmp_path: Path) -> None:
    made = export(source(), tmp_path / "out", precision=Precision.FP32, streaming=Streaming(memory=4))
    assert made.path.name == MODEL
    assert made.manifest.stream is not None
    assert made.manifest.stream.remembers == 4
    form = streamed(source().module, network().input, 4)
    states, frames = form.start(), torch.randn(9, 3, SIZE, SIZE)
    with served(made.path) as file, torch.inference_mode():
        for frame in frames.split(1):
            answer, *renewed = form(frame, *states)
            states = tuple(renewed)
            np.testing.assert_allclose(file(frame.numpy()), answer.numpy(), rtol=1e-3, atol=1e-5)
    assert float(states[0]) == 4


def test_an_unreadable_validation_video_is_an_error_in_words(workspace: Workspace, tmp_path: Path) -> None:
    """Observers are compared on the calibration clips then, of which a stream sees frame by frame."""
    original, data = source(), tmp_path / "data"
    calibration = open_calibration(workspace, "synthetic", original, count=1)
    shutil.copytree(Path(calibration.dataset.videos.paths[0]).parents[2], data)
    unreadable = Path(open_validation(workspace, str(data), original).dataset.videos.paths[0])
    unreadable.write_text("text")
    with pytest.raises(VideoError, match=re.escape(str(unreadable))):
        export(
            original,
            tmp_path / "out",
            precision=Precision.INT8,
            calibration=calibration,
            validation=open_validation(workspace, str(data), original),
            streaming=Streaming(),
        )


@pytest.fixture
def verified(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], tuple[int, dict[str, Any], str]]:
    """``hwbench verify`` of one clip on this machine, in the Python runner: exit status, printed object, talk."""
    monkeypatch.setattr(hwbench.measure.device_runner, "choose_runner", lambda *_: python_runner())
    monkeypatch.chdir(workspace.root)

    def run(model: Path) -> tuple[int, dict[str, Any], str]:
        status: Any = 0
        try:
            main(["verify", str(model), "--inputs", "1", "--json"])
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr()
        return int(status or 0), json.loads(said.out), said.err

    return run


def test_verify_compares_the_answers_behind_all_frames_of_two_windows(
    stream: DeployedModel, verified: Callable[[Path], tuple[int, dict[str, Any], str]]
) -> None:
    status, found, _ = verified(stream.path)
    assert (status, found["inputs"], found["frames"], found["differs_from"]) == (0, 1, 2 * FRAMES, None)
    assert found["max_relative_error"] < 1e-5
    assert found["same_top1"] == 1


@pytest.mark.parametrize("kept", [pytest.param(1, marks=pytest.mark.long), FRAMES])
def test_verify_names_the_frame_from_which_a_device_has_other_states(
    stream: DeployedModel,
    verified: Callable[[Path], tuple[int, dict[str, Any], str]],
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    """A device that keeps states for so many frames and then begins anew: the first answers are right."""

    def forgetful(path: Path, clip: Any, **_: Any) -> CheckResult:
        with served(path, window=kept) as file:
            return CheckResult(np.concatenate(file.answers(clip)), 0.0, 0.0)

    monkeypatch.setattr(hwbench.deploy.verification, "check_artifact", forgetful)
    status, found, said = verified(stream.path.parent)
    assert (status, found["agrees"], found["differs_from"]) == (5, False, kept + 1)
    assert f"than here from frame {kept + 1} of {2 * FRAMES} on: largest error" in said


def test_verify_follows_a_memory_and_knows_an_end() -> None:
    assert stream_frames(StreamRecord((), None, 16)) == 32
    assert stream_frames(StreamRecord((), 20, 16)) == 40
    assert stream_frames(StreamRecord((), 5000, 16)) == 128


def test_one_loaded_file_takes_two_streams_in_turns_and_a_lost_frame_is_a_clip_without_it(
    stream: DeployedModel,
) -> None:
    """The calls that the programs of the page make, each stream with its own set of states."""
    program = engine(1)._load_program(str(stream.path))
    method, form = program.load_method("forward"), streamed(source().module, network().input)
    record = stream.manifest.stream
    assert record is not None
    start = [zeros.to(getattr(torch, state.dtype)) for zeros, state in zip(form.start(), record.states, strict=True)]

    def step(frame: torch.Tensor, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        given = [frame.contiguous(memory_format=torch.channels_last), *states]  # read while it executes, not before
        method.set_inputs(given)
        method.execute()
        logits, *renewed = method.get_outputs()
        return logits, renewed

    clips = torch.randn(2, FRAMES + 2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(5))
    with served(stream.path, window=FRAMES + 2) as file:
        alone = [np.concatenate(file.answers(clip.numpy())) for clip in clips]
        kept = [0, 1, 3, 4, 5]
    with served(stream.path) as file:
        lost = file.replay(clips[0, kept].numpy())
    states: list[Sequence[torch.Tensor]] = [start, start]
    for at in range(FRAMES + 2):
        for number, clip in enumerate(clips):
            logits, states[number] = step(clip[at : at + 1], states[number])
            np.testing.assert_array_equal(logits[0].numpy(), alone[number][at])
    with torch.inference_mode():
        expected = source().module(clips[0, kept].transpose(0, 1)[None])
    bound = {Precision.FP32: 1e-3, Precision.FP16: 1e-2, Precision.INT8: 1.0}[stream.manifest.precision]
    assert relative_error(expected, torch.from_numpy(lost.copy())) <= bound
