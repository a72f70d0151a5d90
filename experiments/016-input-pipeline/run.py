"""Clips per second for training, ours and others, on the same files with the same processes. See README.md.

python experiments/016-input-pipeline/run.py [--source FILE] [--prepared ENCODER] [--seconds 10] [--rounds 5]
                                             [--out results.json]
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.workspace import Workspace

HERE = Path(__file__).parent
CLASSES, PER_CLASS = 4, 10
FRAMES, RATE, HEIGHT, WIDTH = 300, 30, 256, 340
# X3D-XS: 4 frames, each the 12th, a crop of 160 out of short sides of 182 to 228.
CLIP_FRAMES, STRIDE, LOW, HIGH, CROP, MEAN, STD = 4, 12, 182, 228, 160, 0.45, 0.225
SPAN_S = Fraction(CLIP_FRAMES * STRIDE, RATE)
BATCH, WORKERS = 8, 2
SOAK_CLIPS = 10_000


def texture(rng: np.random.Generator) -> np.ndarray:
    """A large picture with detail at all scales, as photographs have it: (H, W, 3)."""
    import torch

    picture = np.zeros((3, 640, 800), np.float32)
    for scale in (8, 16, 32, 64, 128):
        coarse = torch.from_numpy(rng.normal(size=(1, 3, 640 // scale + 2, 800 // scale + 2)).astype(np.float32))
        fine = torch.nn.functional.interpolate(coarse, scale_factor=scale, mode="bicubic")[0, :, :640, :800].numpy()
        picture += fine * scale**0.7
    picture = 128 + 45 * picture / picture.std()
    return picture.transpose(1, 2, 0)


def drawn(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A textured disc that moves before a background that pans, with the noise of a sensor."""
    back, front = texture(rng), texture(rng)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    phase = rng.uniform(0, 6, 4)
    for t in range(FRAMES):
        top, left = (int(60 + 50 * np.sin(t / 40 + p)) for p in phase[:2])
        frame = back[top : top + HEIGHT, left : left + WIDTH].copy()
        y, x = 128 + 70 * np.sin(t / 17 + phase[2]), 170 + 100 * np.sin(t / 23 + phase[3])
        disc = (rows - y) ** 2 + (columns - x) ** 2 < 60**2
        frame[disc] = front[:HEIGHT, :WIDTH][disc]
        yield np.clip(frame + rng.normal(0, 2, frame.shape), 0, 255).astype(np.uint8)


def filmed(source: Path, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A real video at that size, from a frame on, forwards and backwards, mirrored or not."""
    import av

    with av.open(str(source)) as file:
        frames = [f.reformat(WIDTH, HEIGHT, "rgb24").to_ndarray() for f in file.decode(video=0)]
    start, mirrored = int(rng.integers(len(frames))), bool(rng.integers(2))
    ring = frames + frames[-2:0:-1]
    for t in range(FRAMES):
        frame = ring[(start + t) % len(ring)]
        yield np.ascontiguousarray(frame[:, ::-1] if mirrored else frame)


def write_videos(root: Path, source: Path | None) -> None:
    """Files as Kinetics has them after it was made smaller: 10 s, short side 256, H.264 with x264's own settings."""
    import av

    for number in range(CLASSES * PER_CLASS):
        split = "val" if number % PER_CLASS == 0 else "train"
        path = root / split / f"class{number // PER_CLASS}" / f"{number:03}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        with av.open(str(path), "w") as file:
            stream = file.add_stream("libx264", rate=RATE, options={"crf": "23"})
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for picture in drawn(rng) if source is None else filmed(source, rng):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            file.mux(stream.encode(None))


def prepare_videos(root: Path, encoder: str) -> None:
    """Puts what ``hwbench data prepare`` makes of the files in their place, for every pipeline."""
    made = root / "prepared"
    words = ["data", "prepare", str(root / "videos"), str(made), "--short-side", str(HEIGHT), "--encoder", encoder]
    subprocess.run([sys.executable, "-P", "-m", "hwbench", *words], check=True)
    shutil.rmtree(root / "videos")
    made.rename(root / "videos")


def batches_of(dataset: Any, **how: Any) -> Iterator[Any]:
    """Batches of another library's data set, for ever, read by as many processes."""
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, drop_last=True, persistent_workers=True, **how)
    while True:
        yield from loader


def ours(root: Path) -> Iterator[Any]:
    from hwbench.data import ClipSpec, PictureSpec, open_dataset
    from hwbench.data.loading import Loader, shuffled

    workspace = (
        Workspace.find(root / "workspace") if (root / "workspace").exists() else Workspace.create(root / "workspace")
    )
    dataset = open_dataset(
        workspace,
        str(root / "videos"),
        split="train",
        size=(CROP, CROP),
        clip=ClipSpec(CLIP_FRAMES, stride=STRIDE),
        picture=PictureSpec((LOW / CROP, HIGH / CROP)),
        transforms=["flip:0.5"],
        cache_bytes=0,
    )
    loader = Loader(dataset, workers=WORKERS)
    for epoch in range(10**6):
        dataset.set_epoch(epoch)
        for batch in loader.batches(shuffled(len(dataset), BATCH, seed=0, epoch=epoch)):
            yield batch.clips


def pytorchvideo(root: Path) -> Iterator[Any]:
    import torch
    import torchvision

    sys.modules["torchvision.transforms.functional_tensor"] = torchvision.transforms._functional_tensor
    import pytorchvideo.transforms as theirs
    from pytorchvideo.data import LabeledVideoDataset, make_clip_sampler
    from torchvision.transforms import Compose, Lambda, RandomCrop, RandomHorizontalFlip

    view = theirs.ApplyTransformToKey(
        "video",
        Compose(
            [
                theirs.UniformTemporalSubsample(CLIP_FRAMES),
                Lambda(lambda x: x / 255),
                theirs.Normalize((MEAN,) * 3, (STD,) * 3),
                theirs.RandomShortSideScale(LOW, HIGH),
                RandomCrop(CROP),
                RandomHorizontalFlip(),
            ]
        ),
    )
    paths = [(str(path), {"label": 0}) for path in videos_of(root)]
    dataset = LabeledVideoDataset(
        paths,
        make_clip_sampler("random", SPAN_S),
        video_sampler=torch.utils.data.RandomSampler,
        transform=lambda sample: view(sample)["video"],
        decode_audio=False,
        decoder="pyav",
    )
    yield from batches_of(dataset)


class WithTorchcodec:
    """Random clips of files by torchcodec, with the transforms of torchvision's reference or with none."""

    def __init__(self, root: Path, transform: Callable[[Any], Any] | None) -> None:
        self.paths, self.transform = videos_of(root), transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        import torch
        from torchcodec.decoders import VideoDecoder

        decoder = VideoDecoder(str(self.paths[index]), num_ffmpeg_threads=1)
        frames = decoder.metadata.num_frames
        start = int(torch.randint(frames - CLIP_FRAMES * STRIDE + 1, ()))
        clip = decoder.get_frames_at([start + STRIDE * i for i in range(CLIP_FRAMES)]).data
        return clip if self.transform is None else self.transform(clip)


def torchvision_reference(root: Path) -> Iterator[Any]:
    """The steps of ``references/video_classification``; its decoder is torchcodec since torchvision has none."""
    import torch
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.RandomShortestSize(list(range(LOW, HIGH + 1)), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomCrop(CROP),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((MEAN,) * 3, (STD,) * 3),
            v2.Lambda(lambda x: x.transpose(0, 1)),
        ]
    )
    yield from batches_of(WithTorchcodec(root, transform), shuffle=True)


def torchcodec_alone(root: Path) -> Iterator[Any]:
    """Decoding alone: frames of the size of the file, nothing done to them."""
    yield from batches_of(WithTorchcodec(root, None), shuffle=True)


def pyav_alone(root: Path) -> Iterator[Any]:
    """Decoding alone, by ours: the same frames, nothing done to them."""
    yield from batches_of(Frames(root), shuffle=True)


class Frames:
    """Random clips of files by our decoder, with nothing done to them."""

    def __init__(self, root: Path) -> None:
        self.paths, self.infos = videos_of(root), {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        import torch

        from hwbench.data.decoding import VideoFile

        with VideoFile(self.paths[index], self.infos.get(index)) as video:
            self.infos[index] = video.info
            start = int(torch.randint(video.info.num_frames - CLIP_FRAMES * STRIDE + 1, ()))
            return torch.from_numpy(video.read([start + STRIDE * i for i in range(CLIP_FRAMES)]))


PIPELINES = {
    "ours": ours,
    "pytorchvideo 0.1.5": pytorchvideo,
    "torchvision reference": torchvision_reference,
    "torchcodec alone": torchcodec_alone,
    "PyAV alone": pyav_alone,
}


def videos_of(root: Path) -> list[Path]:
    return sorted(path for path in (root / "videos" / "train").rglob("*") if path.suffix in (".mp4", ".mkv", ".avi"))


def one(name: str, root: Path, seconds: float) -> dict[str, float]:
    """Clips a second of one pipeline in this process and its workers, the first pass over the files left out."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    batches = PIPELINES[name](root)
    for _ in range(max(1, len(videos_of(root)) // BATCH)):
        next(batches)
    start, clips = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        clips += len(next(batches))
    return {"clips_per_s": clips / (time.monotonic() - start)}


def soak(root: Path) -> dict[str, list[float]]:
    """Memory of a process that reads 10,000 clips of ours by itself, after every thousand, in MiB."""
    global WORKERS
    WORKERS = 0
    read, resident = 0, []
    for clips in ours(root):
        read += len(clips)
        if read // 1000 > len(resident):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1))
        if read >= SOAK_CLIPS:
            return {"resident_mib": resident}
    raise AssertionError


def apart(*words: str) -> dict[str, Any]:
    """What this file prints with these words, in a process of its own."""
    command = [sys.executable, "-P", __file__, *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", type=Path, help="a real video to make the files from; default: drawn ones")
    options.add_argument("--prepared", metavar="ENCODER", help="read what `data prepare --encoder` makes")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, default=HERE / "results.json")
    options.add_argument("--one", nargs=2, metavar=("PIPELINE", "FOLDER"), help=argparse.SUPPRESS)
    options.add_argument("--soak", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], Path(given.one[1]), given.seconds)))
        return
    if given.soak:
        print(json.dumps(soak(given.soak)))
        return
    names = [n for n in PIPELINES if importlib.util.find_spec("torchcodec") or n not in _NEED_TORCHCODEC]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_videos(root / "videos", given.source)
        Workspace.create(root / "workspace")
        if given.prepared:
            prepare_videos(root, given.prepared)
        size = statistics.mean(path.stat().st_size for path in videos_of(root))
        for number in range(given.rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                rate = apart("--one", name, folder, "--seconds", str(given.seconds))["clips_per_s"]
                found[name].append(round(rate, 1))
                print(number, name, f"{rate:.1f} clips/s", flush=True)
        memory = apart("--soak", folder)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    ratios = {
        name: round(statistics.median(a / b for a, b in zip(found["ours"], found[name])), 2) for name in names[1:]
    }
    results = {
        "source": "a real video" if given.source else "drawn",
        "prepared": given.prepared,
        "mean_file_kib": round(size / 1024),
        "workers": WORKERS,
        "clips_per_s": medians,
        "ours_over": ratios,
        "rounds": found,
        **memory,
    }
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


_NEED_TORCHCODEC = ("torchvision reference", "torchcodec alone")

if __name__ == "__main__":
    main()
