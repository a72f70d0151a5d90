"""19-27: RUN.md beside an export holds programs that run this very file, and docs/run-model.md explains them."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import get_model_weights

from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.deploy import MANIFEST, MODEL, DeployedModel, ExportSource, Manifest, export
from hwbench.deploy.atomic_export import place
from hwbench.deploy.external import ForeignModel, external_model, foreign_original
from hwbench.deploy.file_names import RUN, is_our_page
from hwbench.deploy.manifest_records import InputForm, resize_text
from hwbench.deploy.model_process import served
from hwbench.deploy.run_page import run_page
from hwbench.runtimes import get, names
from hwbench.runtimes.capabilities import Capabilities
from hwbench.runtimes.onnx import OnnxRuntime
from hwbench.runtimes.torchscript import engine_of
from hwbench.specs import Precision, TensorSpec
from hwbench.testing.run_pages import build_page_program, frames_of_page, page_programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def film(int8: DeployedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of raw frames, as the programs read it."""
    frames, _, height, width = int8.manifest.input.shape
    path = tmp_path_factory.mktemp("film") / "clip.rgb"
    np.random.default_rng(0).integers(0, 256, (frames, height, width, 3), dtype=np.uint8).tofile(path)
    return path


def expected(model: DeployedModel, film: Path) -> np.ndarray:
    """Logits for the frames, normalised by what the manifest says."""
    form = model.manifest.input
    frames, _, height, width = form.shape
    pixels = np.fromfile(film, dtype=np.uint8).reshape(frames, height, width, 3).astype(np.float64)
    clip = (pixels / form.value_scale - form.mean) / form.std
    with served(model.path) as file:
        return file(np.ascontiguousarray(clip.transpose(0, 3, 1, 2)).astype(np.float32))[0]


def printed(command: list[str], folder: Path, **environment: str) -> np.ndarray:
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return np.array([float(line) for line in done.stdout.split()], dtype=np.float32)


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "int8"])
def test_19_27_the_program_in_python_runs_the_file(
    precision: str, film: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model: DeployedModel = request.getfixturevalue(precision)
    (program,) = page_programs((model.path.parent / RUN).read_text(), "python")
    (tmp_path / "run.py").write_text(program)
    logits = printed([sys.executable, "-P", "run.py", str(model.path), str(film)], tmp_path)
    np.testing.assert_allclose(logits, expected(model, film), rtol=1e-4, atol=1e-4 if precision == "fp32" else 2e-2)


def test_19_27_the_program_in_cpp_compiles_and_gives_the_same(int8: DeployedModel, film: Path, tmp_path: Path) -> None:
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler: apt-get install g++")
    build_page_program((int8.path.parent / RUN).read_text(), tmp_path)
    logits = printed(["./run", str(int8.path), str(film)], tmp_path)
    np.testing.assert_allclose(logits, expected(int8, film), rtol=1e-4, atol=2e-2)
    short = subprocess.run(["./run", str(int8.path), "/dev/null"], cwd=tmp_path, capture_output=True, check=False)
    assert short.returncode == 2


@pytest.mark.parametrize(
    ("picture", "filters"),
    [
        (PictureSpec(), r"crop=min(iw\,ih*16/16):min(ih\,iw*16/16):exact=1,scale=16:16:flags=bilinear"),
        (
            PictureSpec(test_scale=1.25),
            r"crop=min(iw\,ih*16/16)/1.25:min(ih\,iw*16/16)/1.25:exact=1,scale=16:16:flags=bilinear",
        ),
        (
            PictureSpec(test_scale=1.25, resize=Resize.SHORT_SIDE),
            "scale=20:20:force_original_aspect_ratio=increase:flags=bilinear,crop=16:16:exact=1",
        ),
    ],
)
def test_the_command_cuts_what_the_page_says(int8: DeployedModel, picture: PictureSpec, filters: str) -> None:
    form = replace(int8.manifest.input, resize=resize_text(picture, (16, 16)))
    page = run_page(replace(int8.manifest, input=form))
    assert f'ffmpeg -i video.mp4 -vf "framestep=4,{filters}" -frames:v 4' in page
    assert "makes of the beginning of a video, and print" in page


@pytest.mark.parametrize("frame", [(240, 320), (640, 360), (96, 400)])
@pytest.mark.parametrize(("size", "scaled"), [((64, 32), "41:83"), ((32, 64), "83:41"), ((48, 40), "52:62")])
def test_the_command_cuts_a_picture_that_is_no_square_where_hwbench_does(
    size: tuple[int, int], scaled: str, frame: tuple[int, int], int8: DeployedModel, tmp_path: Path
) -> None:
    """Each pixel of the frame says where it lies, so that another part of it has other colours."""
    picture = PictureSpec(test_scale=1.29, resize=Resize.SHORT_SIDE)
    form = replace(int8.manifest.input, shape=(4, 3, *size), resize=resize_text(picture, size))
    page = run_page(replace(int8.manifest, input=form))
    width, height = scaled.split(":")
    assert f"scaled, in its own shape, until it just covers {height} x {width} pixels (height x width), the" in page
    assert f"and the centred {size[0]} x {size[1]} pixels of it.\n" in page
    filters = f"scale={scaled}:force_original_aspect_ratio=increase:flags=bilinear,crop={size[1]}:{size[0]}:exact=1"
    assert f'"framestep=4,{filters}"' in page
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg: apt-get install ffmpeg")
    rows, columns = (np.linspace(0, 255, side).round() for side in frame)
    film = np.stack([*np.meshgrid(rows, columns, indexing="ij"), np.full(frame, 128.0)], axis=2).astype(np.uint8)
    kind = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{frame[1]}x{frame[0]}", "-i", "-"]
    made = ["ffmpeg", "-v", "error", *kind, "-c:v", "rawvideo", "-f", "nut", "video.mp4"]
    subprocess.run(made, cwd=tmp_path, input=film.tobytes(), check=True, capture_output=True)
    (command,) = (one for one in page_programs(page, "bash") if "ffmpeg" in one)
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True, capture_output=True)
    theirs = np.fromfile(tmp_path / "clip.rgb", dtype=np.uint8).reshape(*size, 3).astype(int)
    (ours,) = picture.fixed_transform(size, 1, Normalisation()).pictures(film[None])
    pixel = 255 / min(round(side * 1.29) for side in size)
    assert np.abs(theirs - ours[0].permute(1, 2, 0).numpy()).max() <= 1.5 * pixel + 2


def spaced(model: DeployedModel, clip: ClipSpec) -> str:
    """The page of the model, where its clips are cut so."""
    return run_page(replace(model.manifest, input=replace(model.manifest.input, clip=clip)))


def test_the_command_takes_frames_as_far_apart_as_the_page_says(int8: DeployedModel, tmp_path: Path) -> None:
    assert '-vf "crop=' in spaced(int8, ClipSpec(4, stride=1))
    assert '-vf "fps=2,crop=' in spaced(int8, ClipSpec(4, span_s=2))
    assert '-vf "fps=1.91489,crop=' in spaced(int8, ClipSpec(4, stride=12, convention="pytorchvideo", target_fps=30))
    whole = spaced(int8, ClipSpec(4, convention="segments"))
    assert "makes of the first 4 frames of a video, not of the whole of it, and print" in whole
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg: apt-get install ffmpeg")
    each = frames_of_page(spaced(int8, ClipSpec(4, stride=1)).replace("-frames:v 4 ", ""), tmp_path, 16 * 16 * 3)
    (tmp_path / "clip.rgb").unlink()
    (tmp_path / "video.mp4").unlink()
    assert frames_of_page(spaced(int8, ClipSpec(4, stride=4)), tmp_path, 16 * 16 * 3) == each[:16:4]


def test_the_command_holds_the_last_frame_of_a_short_video_where_the_page_says_so(
    int8: DeployedModel, tmp_path: Path
) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg: apt-get install ffmpeg")
    page = spaced(int8, ClipSpec(4, stride=8))
    (held,) = re.findall(r"^`(,tpad=[^`]+)`", page, re.MULTILINE)
    (taken,) = re.findall(r'-vf "[^"]+', page)
    few = frames_of_page(page, tmp_path, 16 * 16 * 3)
    for name in ("clip.rgb", "video.mp4"):
        (tmp_path / name).unlink()
    frames = frames_of_page(page.replace(taken, taken + held), tmp_path, 16 * 16 * 3)
    assert len(few) == 3
    assert frames == [*few, few[-1]]


def test_the_command_takes_each_frame_once_of_a_video_that_is_not_even(int8: DeployedModel, tmp_path: Path) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg: apt-get install ffmpeg")
    page = spaced(int8, ClipSpec(4, stride=1)).replace("-frames:v 4 ", "")
    assert len(frames_of_page(page, tmp_path, 16 * 16 * 3)) == 18


def test_19_27_the_page_has_the_numbers_of_the_model(int8: DeployedModel) -> None:
    text = (int8.path.parent / RUN).read_text()
    assert not re.search(r"@[A-Z_]+@", text)
    assert "shape (4, 3, 16, 16)" in text
    assert "Take 4 frames of the video: each 4 after the one before" in text
    assert "mean 0.45, 0.45, 0.45 and std 0.225, 0.225, 0.225" in text
    assert f"executorch=={int8.manifest.runtime_version}" in text
    assert f"executorch-android:{int8.manifest.runtime_version}" in text
    for label in int8.manifest.labels:
        assert f'`"{label}"`' in text
    assert "shape: [4, 3, 16, 16]" in text


@pytest.mark.parametrize("runtime", [name for name in names() if name != "torch"])
def test_19_27_every_runtime_has_its_page(runtime: str, int8: DeployedModel) -> None:
    text = run_page(replace(int8.manifest, runtime=runtime))
    assert not re.search(r"@[A-Z_]+@", text)
    (program,) = page_programs(text, "python")
    compile(program, "run.py", "exec")
    assert "hwbench" not in program
    assert re.search(r"^`python -m pip install (?!hwbench)[a-z-]+==", text, re.MULTILINE)


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torchscript", "litert"])
def test_19_27_the_programs_of_other_engines_need_no_hwbench(
    runtime: str, original: ExportSource, int8: DeployedModel, film: Path, tmp_path: Path
) -> None:
    for package in get(runtime).capabilities.packages:
        pytest.importorskip(package.replace("-", "_"), reason=f"python -m pip install {package}")
    model = export(original, tmp_path / "out", precision=Precision.FP32, runtime=get(runtime))
    (program,) = page_programs((model.path.parent / RUN).read_text(), "python")
    (tmp_path / "run.py").write_text(f"import sys\nsys.modules['hwbench'] = None\n{program}")
    logits = printed([sys.executable, "-P", "run.py", str(model.path), str(film)], tmp_path)
    np.testing.assert_allclose(logits, expected(model, film), rtol=1e-4, atol=1e-4)


def test_19_27_the_program_of_int8_torchscript_sets_the_kernels_of_the_file(
    original: ExportSource, int8: DeployedModel, film: Path, tmp_path: Path
) -> None:
    path, example = tmp_path / "model.ts", torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    workload = original.network.workload(Precision.INT8)
    get("torchscript").build(original.deployed(), example, workload, path, [example])
    (program,) = page_programs(run_page(replace(int8.manifest, runtime="torchscript")), "python")
    (tmp_path / "run.py").write_text(f"{program}\nprint(torch.backends.quantized.engine, file=sys.stderr)\n")
    command = [sys.executable, "-P", "run.py", str(path), str(film)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.split()[-1] == engine_of(torch.backends.quantized.supported_engines)
    assert len(done.stdout.split()) == original.network.num_classes


def test_19_27_the_page_of_a_runtime_without_one_names_the_source_of_hwbench(
    int8: DeployedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(OnnxRuntime.capabilities, run_page=Capabilities.run_page)
    monkeypatch.setattr(OnnxRuntime, "capabilities", bare)
    flow = replace(int8.manifest, runtime="onnx", input=replace(int8.manifest.input, shape=(4, 2, 16, 16)))
    text = run_page(flow)
    assert "pip install /path/to/hwbench`" in text
    assert "pip install hwbench" not in text
    assert "reshape(4, 16, 16, 2)" in text


@pytest.mark.parametrize("runtime", ["litert", "torchscript", "openvino"])
def test_the_programs_of_networks_of_flow_read_two_channels(runtime: str, int8: DeployedModel) -> None:
    form = replace(int8.manifest.input, shape=(4, 2, 16, 16))
    assert "reshape(4, 16, 16, 2)" in run_page(replace(int8.manifest, runtime=runtime, input=form))


def test_19_27_names_from_elsewhere_stay_text(int8: DeployedModel) -> None:
    labels = ("a`b", "```\n# heading", "\x1b[31mred", "x" * 500)
    text = run_page(replace(int8.manifest, labels=labels))
    assert len(page_programs(text, "python")) == 1
    assert "\x1b" not in text
    assert "\n# heading" not in text
    assert max(map(len, text.splitlines())) < 1000
    assert 'In this order: `"über ☂"`, `"跳舞"`.' in run_page(replace(int8.manifest, labels=("über ☂", "跳舞")))
    many = run_page(replace(int8.manifest, labels=tuple(map(str, range(400)))))
    assert "`labels` of `manifest.json`" in many
    assert "Out come 400 numbers" in many


@pytest.mark.parametrize("shape", [(4, 3, 16, 16), (4, 2, 16, 16)])
def test_19_27_the_name_of_a_network_is_no_markup(int8: DeployedModel, shape: tuple[int, ...]) -> None:
    def page(name: str) -> list[str]:
        architecture = replace(int8.manifest.architecture, name=name)
        form = replace(int8.manifest.input, shape=shape)
        return run_page(replace(int8.manifest, runtime="onnx", architecture=architecture, input=form)).splitlines()

    name = "net` <img src=//e.example/x> [log in](https://e.example)\n# T"
    assert page(name)[3].startswith("`net' <img src=//e.example/x> [log in](https://e.example) # T` in int8, for onnx ")
    assert page("x3d-mini")[3].startswith("`x3d-mini` in int8, for onnx ")
    assert len(page(name)) == len(page("x3d-mini"))


def test_19_27_a_model_from_elsewhere_without_class_names_has_as_many_numbers_as_classes(int8: DeployedModel) -> None:
    unnamed = replace(int8.manifest, labels=())
    assert "Out come 8 numbers (logits) as float32;" in run_page(unnamed)
    elsewhere = replace(unnamed, architecture=replace(int8.manifest.architecture, blocks=()))
    assert "Out come as many numbers (logits) as the model has classes as float32;" in run_page(elsewhere)


def test_the_page_of_a_model_from_elsewhere_says_how_many_classes_it_has(tmp_path: Path) -> None:
    layers = nn.Conv3d(3, 4, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 7)
    made = ForeignModel("mynets:clips", nn.Sequential(*layers))
    source = foreign_original(made, ClipSpec(2, stride=1), TensorSpec(1, 3, 2, 8, 8), None, seed=0)
    model = export(source, tmp_path / "out", precision=Precision.FP32, runtime=get("torchscript"))
    assert "Out come 7 numbers (logits) as float32;" in (model.path.parent / RUN).read_text()


def test_the_page_says_what_was_assumed_of_a_model_from_elsewhere(tmp_path: Path) -> None:
    layers = nn.Conv3d(3, 4, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 7)

    def page(name: str, normalisation: Normalisation | None, seed: int | None) -> str:
        made = ForeignModel("mynets:clips", nn.Sequential(*layers), None, normalisation)
        source = foreign_original(made, ClipSpec(2, stride=1), TensorSpec(1, 3, 2, 8, 8), None, seed)
        model = export(source, tmp_path / name, precision=Precision.FP32, runtime=get("torchscript"))
        assert DeployedModel.open(tmp_path / name).manifest == model.manifest
        return (model.path.parent / RUN).read_text()

    assumed = "**Assumed**, as the model does not tell: "
    assert f"for R, G, B.\n\n{assumed}mean and std, how frames are cut, how far apart frames are. Compare" in page(
        "plain", None, None
    )
    own = page("own", Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), None)
    cut = "how frames are cut, how far apart frames are."
    assert f"with mean 0.0, 0.0, 0.0 and std 1.0, 1.0, 1.0 for R, G, B.\n\n{assumed}{cut}" in own
    assert assumed not in page("random", None, 0)


@pytest.mark.parametrize(
    ("name", "scaled"),
    [("r3d_18", "how frames are cut (torchvision scales each to 128 x 171 pixels), "), ("swin3d_t", "")],
)
def test_a_model_of_torchvision_is_cut_as_the_preset_of_its_weights_does(
    name: str, scaled: str, int8: DeployedModel
) -> None:
    clip = TensorSpec(1, 3, 2, 112, 112)
    source = foreign_original(external_model(f"torchvision:{name}"), ClipSpec(2, stride=1), clip, None, None)
    form = InputForm.of(source.network, source.clip, source.normalisation, source.picture, assumed=source.assumed)
    page = run_page(replace(int8.manifest, input=form))
    assert "its shorter side has 128 pixels, the longer one rounded down, bilinear, not antialiased, and the" in page
    assert "scale=128:128:force_original_aspect_ratio=increase:flags=bilinear,crop=112:112:exact=1" in page
    assert f"**Assumed**, as the model does not tell: {scaled}how far apart frames are. Compare" in page


def test_a_picture_for_a_model_of_torchvision_is_that_of_its_preset() -> None:
    model = external_model("torchvision:swin3d_t")
    assert model.input is not None
    assert model.picture is not None
    assert model.normalisation is not None
    frames = np.random.default_rng(0).integers(0, 256, (2, 300, 450, 3), dtype=np.uint8)
    (ours,) = model.picture.fixed_transform((model.input.h, model.input.w), 1, model.normalisation)(frames)
    preset = get_model_weights("swin3d_t").DEFAULT.transforms()
    theirs = preset(torch.from_numpy(frames).permute(0, 3, 1, 2))
    assert (ours - theirs).abs().max() < 1.1 / 255 / min(model.normalisation.std)  # one code of a pixel


def test_19_27_a_page_that_somebody_wrote_stays(int8: DeployedModel, tmp_path: Path) -> None:
    staged, out = tmp_path / "staged", tmp_path / "out"
    out.mkdir()

    def again() -> str:
        shutil.copytree(int8.path.parent, staged)
        place(staged, out)
        shutil.rmtree(staged)
        assert DeployedModel.open(out).manifest == int8.manifest
        return (out / RUN).read_text()

    ours = (int8.path.parent / RUN).read_text()
    assert again() == ours
    (out / RUN).write_text(ours + "of before\n")
    assert again() == ours
    (out / RUN).write_text("my own words\n")
    assert not is_our_page(out / RUN)
    assert again() == "my own words\n"
    (out / RUN).unlink()
    assert (out / MODEL).is_file()
    assert Manifest.read(out / MANIFEST) == DeployedModel.open(out).manifest  # opens without the page


def test_19_27_the_page_in_docs_has_the_same_programs(int8: DeployedModel) -> None:
    text = (ROOT / "docs" / "run-model.md").read_text()
    made = (int8.path.parent / RUN).read_text()
    for language in ("python", "cpp", "kotlin", "swift"):
        (shown,), (written,) = page_programs(text, language), page_programs(made, language)
        assert numbers_out(shown) == numbers_out(written)


def test_19_27_the_program_in_swift_names_the_path(int8: DeployedModel) -> None:
    """Swift imports ``initWithFilePath:`` of ``ExecuTorchModule.h`` as ``init(filePath:)``."""
    (program,) = page_programs((int8.path.parent / RUN).read_text(), "swift")
    assert "Module(filePath: path)" in program


def test_the_command_in_docs_takes_the_frames_of_its_page() -> None:
    text = (ROOT / "docs" / "run-model.md").read_text()
    assert "Take 4 frames of the video: each 4 after the one before" in text
    assert 'ffmpeg -i video.mp4 -vf "framestep=4,crop=' in text


def numbers_out(program: str) -> str:
    """A program without the sizes that differ from model to model."""
    return re.sub(r"\b\d+(?=[,;)\]]|$)|  +//", "N", program, flags=re.MULTILINE)
