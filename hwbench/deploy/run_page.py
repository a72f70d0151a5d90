"""``RUN.md`` beside an exported file: how to feed and run it, with its own shapes, numbers and labels."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

from hwbench.data import ClipSpec
from hwbench.data.conventions import HWBENCH, conventions, frame_distance
from hwbench.deploy.file_names import MANIFEST, model_name
from hwbench.deploy.manifest import Manifest
from hwbench.deploy.manifest_records import ASSUMED_VALUES, RESIZE, StreamRecord
from hwbench.errors import MissingDependency
from hwbench.printable import printable
from hwbench.registry import package_of
from hwbench.runtimes import get, runtimes
from hwbench.specs.tensor import CLIP_CHANNELS

_PAGE = "hwbench.deploy:run.md.in"
_FLOW_PAGE = "hwbench.deploy:run_flow.md.in"
_STREAM_PAGE = "hwbench.deploy:run_stream.md.in"
# What the numbers that come out say.
_ONE = "; the largest is the answer, and a softmax makes probabilities of them"
_SEVERAL = "; a sigmoid of each is the probability of its class, and several may be there at once"
# What ``hwbench.deploy.manifest_records.resize_text`` says of sizes.
_SCALED = re.compile(r"(?:shorter side has|just covers (\d+) x) (\d+) pixels")
_DIVIDED = re.compile(r"in the frame, divided by ([\d.]+)")
# Beyond these the page would be a list of labels.
_MAX_LABELS = 50
_MAX_LABEL_LENGTH = 80


def run_page(manifest: Manifest, num_classes: int | None = None) -> str:
    """The page of a model: input, output, and programs for its runtime.

    Args:
        manifest: Of the model.
        num_classes: Width of the logits, which the manifest of a model from elsewhere does not tell; None: not known.
    """
    form = manifest.input
    frames, channels, height, width = form.shape
    fields = {
        "FILE": model_name(manifest.runtime),
        "NAME": _code(printable(manifest.architecture.name)),
        "PRECISION": manifest.precision.value,
        "ENGINE": f"{manifest.runtime} {manifest.runtime_version}",
        "PACKAGES": _packages(manifest),
        "VERSION": manifest.runtime_version.partition("+")[0],
        "T": str(frames),
        "C": str(channels),
        "H": str(height),
        "W": str(width),
        "CLIP": _clip(manifest),
        "RESIZE": _resize(manifest),
        "STEP": _step(form.clip),
        "PART": _part(form.clip),
        "PICTURE": _picture(manifest),
        "SCALE": f"{form.value_scale:g}",
        "SCALE_F": _float(form.value_scale),
        "MEANS": ", ".join(map(_float, form.mean)),
        "STDS": ", ".join(map(_float, form.std)),
        "MEANS_F": ", ".join(f"{_float(value)}f" for value in form.mean),
        "STDS_F": ", ".join(f"{_float(value)}f" for value in form.std),
        "ASSUMED": _assumed(form.values),
        "NUMBERS": _one_each_class("numbers (logits)", manifest, num_classes),
        "LOGITS": _one_each_class("logits", manifest, num_classes),
        "ANSWER": _SEVERAL if (manifest.weights.recipe or {}).get("loss") == "bce" else _ONE,
        "LABELS": _labels(manifest.labels),
        "MANIFEST": MANIFEST,
    }
    if manifest.stream is not None:
        fields |= {**_stream_fields(manifest.stream), "CLIP": _spacing(manifest)}
        text = _template(_STREAM_PAGE) + _page_of(manifest.runtime, "stream_page")
    else:
        page = _PAGE if channels == CLIP_CHANNELS else _FLOW_PAGE
        text = _template(page) + _page_of(manifest.runtime, "run_page")
    return re.sub(r"@([A-Z_]+)@", lambda match: fields.get(match[1], match[0]), text)


def check_page(runtime: str) -> None:
    """Makes sure that there is the text that a runtime adds to the page of its files, and of its streams.

    Raises:
        MissingDependency: There is none; the message names the runtime.
    """
    for field in ("run_page", "stream_page") if get(runtime).capabilities.streams else ("run_page",):
        _page_of(runtime, field)


def _page_of(runtime: str, field: str) -> str:
    """The text that this field of ``Capabilities`` names; errors as ``check_page``."""
    place = getattr(get(runtime).capabilities, field)
    try:
        return _template(place)
    except Exception as error:  # the package is imported, and its code raises what it likes
        title = runtimes.origin(runtimes.get(runtime)) or f"runtime {runtime!r}"
        cause = printable(f"{type(error).__name__}: {error}", 300)
        raise MissingDependency(
            f"{title}: expected package:file as its {field}, a text in a folder with an __init__.py, got {place!r} "
            f"({cause})"
        ) from error


def _packages(manifest: Manifest) -> str:
    """The engine, and the package that a runtime comes from which is none of hwbench's own."""
    engine, point = get(manifest.runtime).capabilities.packages[0], runtimes.point(manifest.runtime)
    text = f"the engine, {engine} {manifest.runtime_version}"
    if point is None:
        return text
    return f"{text}, and `{package_of(point)}`, the package with the runtime `{manifest.runtime}`"


def _stream_fields(stream: StreamRecord) -> dict[str, str]:
    """What the page says of the states."""
    remembered = "all frames since then" if stream.remembers is None else f"the last {stream.remembers} frames or so"
    return {
        "STATES": str(len(stream.states)),
        "TYPES": " and ".join(sorted({state.dtype for state in stream.states})),
        "BYTES": str(stream.state_bytes),
        "REMEMBERED": remembered,
        "WINDOW": str(stream.checked_frames),
    }


def write_run_page(manifest: Manifest, num_classes: int, path: Path) -> None:
    """Writes the page of a model with that many classes."""
    path.write_text(run_page(manifest, num_classes), encoding="utf-8")


def _template(place: str) -> str:
    """The text of ``package:file``."""
    package, _, name = place.partition(":")
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _clip(manifest: Manifest) -> str:
    clip = manifest.input.clip
    if clip.convention != HWBENCH or clip.target_fps is not None:
        return _published_clip(clip)
    if clip.stride is None:
        return f"evenly over {clip.span_s:g} s, in the middle of the video where one clip stands for it"
    if clip.stride == 1:
        return "one after the other, in the middle of the video where one clip stands for it"
    return f"each {clip.stride} after the one before, in the middle of the video where one clip stands for it"


def _spacing(manifest: Manifest) -> str:
    """How far apart the frames of a stream are; its page says what is done where the video begins or ends."""
    clip = manifest.input.clip
    if clip.stride is None and clip.convention == HWBENCH and clip.span_s is not None:
        return f"{clip.frames} of them in {clip.span_s:g} s"
    return _clip(manifest).partition(", in the middle")[0]


def _assumed(values: str) -> str:
    """What of this the model does not tell, as lines behind the steps."""
    assumed = values.partition(ASSUMED_VALUES)[2]
    if not assumed:
        return ""
    return f"\n\n**Assumed**, as the model does not tell: {assumed}. Compare with how its weights were trained."


def _step(clip: ClipSpec) -> str:
    """The filter of ffmpeg, with a comma behind it, that takes frames of a video as far apart as those of a clip."""
    distance = frame_distance(clip)
    if distance is None:
        return ""
    if clip.span is not None:
        return f"fps={float(1 / distance):g},"
    return f"framestep={round(distance)}," if round(distance) > 1 else ""


def _part(clip: ClipSpec) -> str:
    """What of a video the command of ffmpeg takes, which does not know how long a video is."""
    if frame_distance(clip) is None:
        return f"the first {clip.frames} frames of a video, not of the whole of it,"
    return "the beginning of a video,"


def _resize(manifest: Manifest) -> str:
    """How a frame becomes a picture, as a sentence of two lines at most."""
    _, _, height, width = manifest.input.shape
    if manifest.input.resize != RESIZE:
        text = manifest.input.resize.replace("HxW", f"{height} x {width} pixels")
        return (
            "Make the picture of each: "
            + text.replace("H:W", f"{height}:{width}").removesuffix(", before normalising")
            + "."
        )
    return (
        f"Cut the largest centred box of the shape {height}:{width} (height to width) out of each, and resize it to "
        f"{height} x {width} pixels\n   (bilinear, antialiased)."
    )


def _picture(manifest: Manifest) -> str:
    """The filters of ffmpeg that make a picture of a frame as ``resize`` of the manifest says."""
    _, _, height, width = manifest.input.shape
    if scaled := _SCALED.search(manifest.input.resize):
        scale = f"scale={scaled[2]}:{scaled[1] or scaled[2]}:force_original_aspect_ratio=increase:flags=bilinear"
        return f"{scale},crop={width}:{height}:exact=1"
    divided = f"/{by[1]}" if (by := _DIVIDED.search(manifest.input.resize)) else ""
    box = rf"min(iw\,ih*{width}/{height}){divided}:min(ih\,iw*{height}/{width}){divided}"
    return f"crop={box}:exact=1,scale={width}:{height}:flags=bilinear"


def _published_clip(clip: ClipSpec) -> str:
    """A clip cut as another code base does it; its convention is a name of ``hwbench.data.conventions``."""
    chosen, distance = f"by the convention `{clip.convention}`", frame_distance(clip)
    if distance is None:
        return f"over the whole video, {chosen}"
    length = f"{clip.frames * (clip.stride or 1)} frames" if clip.span is None else f"{float(clip.span):g} s"
    if conventions.get(clip.convention).includes_end and clip.frames > 1:
        apart = f"{float(distance):.3g} {'frames' if clip.span is None else 's'} apart"
        return f"evenly over {length}, first and last frame of the window included, {apart}, {chosen}"
    if clip.span is None:
        return f"each {clip.stride} after the one before, {chosen}"
    return f"evenly over {length}, {chosen}"


def _float(value: float) -> str:
    """A number that every language reads as a float."""
    text = repr(float(value))
    return text if "." in text or "e" in text else f"{text}.0"


def _one_each_class(numbers: str, manifest: Manifest, num_classes: int | None) -> str:
    """``8 numbers``; of a model from elsewhere without class names the manifest does not tell how many."""
    if manifest.labels:
        return f"{len(manifest.labels)} {numbers}"
    if manifest.architecture.blocks:
        return f"{manifest.architecture.network().num_classes} {numbers}"
    if num_classes is not None:
        return f"{num_classes} {numbers}"
    return f"as many {numbers} as the model has classes"


def _labels(labels: tuple[str, ...]) -> str:
    if not labels:
        return "The weights came without class names."
    if len(labels) > _MAX_LABELS:
        return f"The class names, in this order, are `labels` of `{MANIFEST}`."
    names = [_code(json.dumps(printable(label, _MAX_LABEL_LENGTH), ensure_ascii=False)) for label in labels]
    return f"In this order: {', '.join(names)}."


def _code(line: str) -> str:
    """A line as code of markdown: nothing in it is markup, and no mark in it ends the span."""
    return "`" + line.replace("`", "'") + "`"
