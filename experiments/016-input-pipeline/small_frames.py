"""Does it pay to let FFmpeg convert colours and make frames smaller in one pass? See README.md.

python experiments/016-input-pipeline/small_frames.py VIDEO.mp4 [--out small_frames.json]
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from av.video.reformatter import Interpolation, VideoReformatter
from torchvision.transforms.v2 import functional as vision

from hwbench.data.transforms import ScaleJitter

FRAMES, REPEATS = 8, 5
# Sizes of videos that are common, and short sides between which X3D-XS draws.
SIZES = ((340, 256), (640, 360), (1280, 720), (1920, 1080))
SHORT_SIDES = (182, 228)
CROP = ScaleJitter((160, 160), (1.1375, 1.1375))


def of_size(frames: list[Any], width: int, height: int) -> list[Any]:
    """Frames as a decoder gives them, at another size."""
    reformatter = VideoReformatter()
    pictures = (reformatter.reformat(f, width, height, "yuv420p", interpolation=Interpolation.BICUBIC) for f in frames)
    return [av.VideoFrame.from_ndarray(picture.to_ndarray(), format="yuv420p") for picture in pictures]


def in_one_pass(frames: list[Any], size: tuple[int, int], how: Interpolation | None) -> np.ndarray:
    """Frames as RGB at a size, uint8 (T, H, W, 3), by swscale."""
    reformatter, options = VideoReformatter(), {} if how is None else {"interpolation": how}
    return np.stack([reformatter.reformat(f, *size, "rgb24", **options).to_ndarray() for f in frames])


def in_planes(frames: list[Any], size: tuple[int, int], how: Interpolation) -> np.ndarray:
    """The same in two passes: planes are made smaller, then colours are converted."""
    smaller = VideoReformatter()
    return in_one_pass([smaller.reformat(f, *size, "yuv420p", interpolation=how) for f in frames], size, None)


def milliseconds(read: Callable[[], np.ndarray]) -> float:
    """Of a frame, with the crop that training makes of it; the best of some repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        CROP.pictures(read(), np.random.default_rng(0))
        best = min(best, time.perf_counter() - start)
    return round(1000 * best / FRAMES, 2)


def compare(frames: list[Any], width: int, height: int, short_side: int) -> list[dict[str, Any]]:
    """One row for each way: milliseconds, and grey levels from torchvision's antialiased resize of the whole frame."""
    size = round(width * short_side / height), short_side
    whole = in_one_pass(frames, (width, height), None)
    pictures = torch.from_numpy(whole).permute(0, 3, 1, 2)
    expected = vision.resize(pictures, [size[1], size[0]], antialias=True).permute(0, 2, 3, 1).numpy().astype(int)
    place = {"video": f"{width}x{height}", "short_side": short_side}
    rows = [{**place, "way": "whole", "ms": milliseconds(lambda: in_one_pass(frames, (width, height), None))}]
    for name, way in (("one pass", in_one_pass), ("planes first", in_planes)):
        for how in (Interpolation.BILINEAR, Interpolation.AREA):
            off = np.abs(way(frames, size, how).astype(int) - expected)
            rows.append(
                {
                    **place,
                    "way": f"{name}, {how.name.lower()}",
                    "ms": milliseconds(lambda way=way, how=how: way(frames, size, how)),
                    "mean_off": round(float(off.mean()), 2),
                    "p99_off": float(np.quantile(off, 0.99)),
                    "largest_off": int(off.max()),
                }
            )
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("video", type=Path)
    options.add_argument("--out", type=Path, default=Path(__file__).with_name("small_frames.json"))
    given = options.parse_args()
    torch.set_num_threads(1)
    with av.open(str(given.video)) as file:
        decoded = [frame for _, frame in zip(range(FRAMES), file.decode(video=0))]
    rows = []
    for width, height in SIZES:
        frames = of_size(decoded, width, height)
        for short_side in SHORT_SIDES:
            rows += compare(frames, width, height, short_side)
    for row in rows:
        print(*row.values(), sep="\t")
    given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
