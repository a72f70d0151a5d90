"""Small copies of public data sets: the layout of each on the disk, with short videos that can be decoded.

``COPIES`` has one for every reader of hwbench. Videos of the first class are dark and those of the second bright, so
that a small network tells them apart.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.io import write_jpeg

from hwbench.data.encoding import write_video

CLASSES = ("run", "walk")
_FPS, _FRAMES, _SIZE = 8, 8, 32
_SHADES = (60, 190)


@dataclass(frozen=True)
class SmallCopy:
    """A small copy of a data set.

    Attributes:
        make: Writes it into a folder that is there, and gives the path for ``--data READER:PATH``.
        multi_label: Its videos may show several classes.
        needs: A package that is not installed with hwbench; empty: none.
    """

    make: Callable[[Path], Path]
    multi_label: bool = False
    needs: str = ""


def small_frames(number: int, count: int = _FRAMES, size: int = _SIZE) -> np.ndarray:
    """Frames of video ``number``, uint8 (T, H, W, 3): even numbers dark, odd ones bright, brighter with time."""
    shade = _SHADES[number % 2] + np.arange(count) + 2 * (number // 2)
    return np.broadcast_to(shade[:, None, None, None], (count, size, size, 3)).astype(np.uint8)


def small_video(path: Path, number: int, *, count: int = _FRAMES, fps: int = _FPS) -> Path:
    """Writes a video of ``small_frames``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, small_frames(number, count), fps=fps)
    return path


def small_images(folder: Path, number: int, template: str = "{:05d}.jpg", *, count: int = _FRAMES) -> Path:
    """Writes the same frames as images, which count from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, frame in enumerate(small_frames(number, count), start=1):
        image = torch.from_numpy(frame.transpose(2, 0, 1).copy())
        write_jpeg(image, str(folder / template.format(index)), quality=95)
    return folder


def _text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _sides() -> Iterator[tuple[str, int, str]]:
    """Side, number and class of six videos: four to train on, two to validate on."""
    for number in range(6):
        yield "train" if number < 4 else "val", number, CLASSES[number % 2]


def folders(root: Path) -> Path:
    """Class folders."""
    for side, number, label in _sides():
        small_video(root / side / label / f"{number}.mp4", number)
    return root


def lists(root: Path) -> Path:
    """Lists of lines ``path label``."""
    for side in ("train", "val"):
        _text(root / f"{side}.txt", *(f"{n}.mp4 {label}" for at, n, label in _sides() if at == side))
    for _, number, _ in _sides():
        small_video(root / f"{number}.mp4", number)
    return root


def kinetics(root: Path) -> Path:
    """Kinetics-400, of which one clip could not be downloaded any more."""
    header = "label,youtube_id,time_start,time_end,split,is_cc"
    for side in ("train", "val"):
        rows = [f'"{label}, far",-a_{n}bcdefgh,{n},{n + 10},{side},0' for at, n, label in _sides() if at == side]
        _text(root / f"{side}.csv", header, *rows, f'"run, far",gone{side},7,17,{side},0')
    for side, number, label in _sides():
        small_video(root / side / f"{label}, far" / f"-a_{number}bcdefgh_{number:06d}_{number + 10:06d}.mp4", number)
    return root


def ucf101(root: Path) -> Path:
    """UCF101 with its split 1 and 2, which has both sides changed."""
    names = ("ApplyEyeMakeup", "YoYo")
    where = root / "ucfTrainTestlist"
    _text(where / "classInd.txt", *(f"{n} {name}" for n, name in enumerate(names, start=1)))
    videos = {n: f"{names[n % 2]}/v_{names[n % 2]}_g{n // 2 + 1:02d}_c01.avi" for n in range(6)}
    for split, train in (("1", range(4)), ("2", range(2, 6))):
        _text(where / f"trainlist0{split}.txt", *(f"{videos[n]} {n % 2 + 1}" for n in train))
        _text(where / f"testlist0{split}.txt", *(videos[n] for n in range(6) if n not in train))
    for number, name in videos.items():
        small_video(root / "UCF-101" / name, number)
    return root


def hmdb51(root: Path) -> Path:
    """HMDB51 with its split 1; one video of each class is in neither side."""
    for label in CLASSES:
        videos = {n: f"film{n}_{label}_f_cm_np1_fr_med_0.avi" for n in range(8) if CLASSES[n % 2] == label}
        sides = {n: 1 if n < 4 else 2 if n < 6 else 0 for n in videos}
        lines = (f"{name} {sides[n]} " for n, name in videos.items())
        _text(root / "testTrainMulti_7030_splits" / f"{label}_test_split1.txt", *lines)
        for number, name in videos.items():
            small_video(root / label / name, number)
    return root


def something_something(root: Path) -> Path:
    """Something-Something of version 2; videos in the container that this PyAV writes with MPEG-4."""
    templates = {"run": "Pushing [something] from left to right", "walk": "Holding [something]"}
    plain = {label: text.replace("[", "").replace("]", "") for label, text in templates.items()}
    labels = {plain["walk"]: "0", plain["run"]: "1"}
    _text(root / "labels" / "labels.json", json.dumps(labels, indent=0))
    for name, side in (("train", "train"), ("validation", "val")):
        entries = [
            {"id": str(1000 + n), "label": "a cup", "template": templates[label], "placeholders": ["a cup"]}
            for at, n, label in _sides()
            if at == side
        ]
        _text(root / "labels" / f"{name}.json", "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]")
    for _, number, _ in _sides():
        small_video(root / "20bn-something-something-v2" / f"{1000 + number}.mp4", number)
    return root


def diving48(root: Path) -> Path:
    """Diving48 of version 2."""
    _text(root / "Diving48_vocab.json", json.dumps([["Back", "15som", "05Twis", "FREE"], ["Forward", "Dive", "PIKE"]]))
    for name, side in (("train", "train"), ("test", "val")):
        entries = [
            {"vid_name": f"-dive_{n:05d}", "label": n % 2, "start_frame": 0, "end_frame": _FRAMES}
            for at, n, _ in _sides()
            if at == side
        ]
        _text(root / f"Diving48_V2_{name}.json", "[" + ",\n".join(map(json.dumps, entries)) + "]")
    for _, number, _ in _sides():
        small_video(root / "rgb" / f"-dive_{number:05d}.mp4", number)
    return root


def charades(root: Path) -> Path:
    """Charades; every second video shows two activities."""
    header = "id,subject,scene,quality,relevance,verified,script,objects,descriptions,actions,length"
    _text(root / "Charades_v1_classes.txt", "c000 Holding some clothes", "c001 Putting clothes somewhere")
    for name, side in (("train", "train"), ("test", "val")):
        rows = []
        for at, number, _ in _sides():
            if at == side:
                actions = "c000 0.00 0.90" + (";c001 0.10 0.70" if number % 2 else "")
                rows.append(f'V{number},P{number},Kitchen,6,7,Yes,"Someone, somewhere.",shoe,"a\nb",{actions},1.00')
        _text(root / f"Charades_v1_{name}.csv", header, *rows)
    for _, number, _ in _sides():
        small_video(root / "Charades_v1_480" / f"V{number}.mp4", number)
    return root


def activitynet(root: Path) -> Path:
    """ActivityNet; each video has two segments, and one subset has no labels."""
    subsets = {"train": "training", "val": "validation"}
    database = {
        f"name-{number}": {
            "duration": 2.0,
            "subset": subsets[side],
            "url": "",
            "annotations": [
                {"segment": [0.0, 0.5], "label": label},
                {"segment": [1.0000000000000002, 2], "label": label},
            ],
        }
        for side, number, label in _sides()
    }
    database["unlabelled"] = {"duration": 2.0, "subset": "testing", "url": "", "annotations": []}
    _text(root / "activity_net.v1-3.min.json", json.dumps({"version": "1.3", "database": database}, indent=1))
    for _, number, _ in _sides():
        small_video(root / "videos" / f"v_name-{number}.mp4", number, count=16)
    return root


_EPIC = "participant_id,video_id,start_timestamp,stop_timestamp,start_frame,stop_frame,verb,verb_class,noun,noun_class"


def _epic_row(number: int) -> str:
    return f"P0{number},P0{number}_1,00:00:00.00,00:00:00.75,1,6,take,{number % 2},a plate,{number // 2 % 2}"


def epic_kitchens(root: Path) -> Path:
    """EPIC-KITCHENS-100."""
    where = root / "annotations"
    for name, side in (("train", "train"), ("validation", "val")):
        rows = [f"P0{n}_1_0,{_epic_row(n)}" for at, n, _ in _sides() if at == side]
        _text(where / f"EPIC_100_{name}.csv", f"narration_id,{_EPIC}", *rows)
    _text(where / "EPIC_100_verb_classes.csv", "id,key,instances,category", "0,take,['take'],x", "1,put,['put'],x")
    _text(where / "EPIC_100_noun_classes.csv", "id,key,instances,category", "0,tap,['tap'],x", "1,plate,['plate'],x")
    for _, number, _ in _sides():
        small_video(root / f"P0{number}" / "videos" / f"P0{number}_1.mp4", number)
    return root


def epic_kitchens_55(root: Path) -> Path:
    """EPIC-KITCHENS-55 with folders of images."""
    _text(root / "EPIC_train_action_labels.csv", f"uid,{_EPIC}", *(f"{n},{_epic_row(n)}" for n in range(6)))
    _text(root / "EPIC_verb_classes.csv", "verb_id,class_key,verbs", "0,take,['take']", "1,put,['put']")
    _text(root / "EPIC_noun_classes.csv", "noun_id,class_key,nouns", "0,tap,['tap']", "1,plate,['plate']")
    _text(root / "EPIC_video_info.csv", "video,resolution,duration,fps", *(f"P0{n}_1,32x32,1.0,8.0" for n in range(6)))
    for number in range(6):
        small_images(root / "rgb" / f"P0{number}" / f"P0{number}_1", number, "frame_{:010d}.jpg")
    return root


def domsev(root: Path) -> Path:
    """DoMSEV; the video of one name has another file name."""
    header = "video_id,start_time,stop_time,start_frame,stop_frame,label_id,label_name"
    rows = [f"{n},0.25,1.0,2,8,{n % 2},{CLASSES[n % 2]}" for n in range(6)]
    _text(root / "labels.csv", header, *rows)
    _text(root / "activity.csv", header, *rows[:4])
    _text(root / "videos.csv", "video_id,file_path", "0,other/name-0.mp4")
    for number in range(6):
        small_video(root / "videos" / ("name-0.mp4" if number == 0 else f"{number}.mp4"), number)
    return root


def ava(root: Path) -> Path:
    """AVA 2.2; each person does one or two things, and one action is none of the challenge's."""
    items = ('  name: "bend/bow (at the waist)"\n  id: 1', '  name: "talk to (e.g., self)"\n  label_id: 79')
    _text(root / "ava_action_list_v2.2.pbtxt", *(f"label {{\n{item}\n}}" for item in items))
    for side in ("train", "val"):
        rows = []
        for at, n, _ in _sides():
            if at == side:
                rows += [f"-film{n},0902,0.1,0.05,0.6,0.95,{action},{n}" for action in ((1, 79) if n % 2 else (79,))]
                rows += [f"-film{n},0903,0.1,0.05,0.6,0.95,2,{n}", f"-film{n},0903,0.1,0.05,0.6,0.95,1,{n}"]
        _text(root / "annotations" / f"ava_{side}_v2.2.csv", *rows)
        _text(root / "annotations" / f"ava_{side}_excluded_timestamps_v2.2.csv", "-film0,0903")
    for _, number, _ in _sides():
        small_video(root / "videos" / f"-film{number}.mp4", number, count=16, fps=4)
    return root


def frame_lists(root: Path) -> Path:
    """Charades as PySlowFast lists it: a row for each frame, some without a label."""
    for side in ("train", "val"):
        rows = []
        for at, number, _ in _sides():
            if at == side:
                shown = ("", "0", "0,1" if number % 2 else "0")
                rows += [
                    f'V{number} V{number} {frame} V{number}/V{number}-{frame + 1:06d}.jpg "{shown[frame % 3]}"'
                    for frame in range(_FRAMES)
                ]
                small_images(root / "Charades_v1_rgb" / f"V{number}", number, f"V{number}-{{:06d}}.jpg")
        _text(root / "frame_lists" / f"{side}.csv", "original_vido_id video_id frame_id path labels", *rows)
    return root


def mmaction2(root: Path) -> Path:
    """mmaction2's lists of videos."""
    for side in ("train", "val"):
        rows = [f"{label}/{n}.mp4 {n % 2}" for at, n, label in _sides() if at == side]
        _text(root / f"tiny_{side}_list_videos.txt", *rows)
        for at, number, label in _sides():
            if at == side:
                small_video(root / f"videos_{side}" / label / f"{number}.mp4", number)
    return root


def mmaction2_frames(root: Path) -> Path:
    """mmaction2's lists of folders of images, with images of optical flow beside them."""
    for side in ("train", "val"):
        rows = [f"{label}/{n} 6 {n % 2}" for at, n, label in _sides() if at == side]
        _text(root / f"tiny_{side}_list_rawframes.txt", *rows)
    for _, number, label in _sides():
        for template in ("img_{:05d}.jpg", "flow_x_{:05d}.jpg", "flow_y_{:05d}.jpg"):
            small_images(root / "rawframes" / label / str(number), number, template)
    return root


def frames(root: Path) -> Path:
    """Folders of images below class folders."""
    for side, number, label in _sides():
        small_images(root / side / label / f"film {number}", number, "frame{}.jpg", count=11)
    return root


def webdataset(root: Path) -> Path:
    """Shards of WebDataset with all three kinds of labels."""
    kinds: Mapping[int, Callable[[str], tuple[str, str]]] = {
        0: lambda label: ("cls", label),
        1: lambda label: ("json", json.dumps({"label": label, "fps": 8})),
        2: lambda label: ("txt", f"{label}\n"),
    }
    for side in ("train", "val"):
        with tarfile.open(root / f"{side}-000000.tar", "w") as tar:
            for at, number, label in _sides():
                if at == side:
                    video = small_video(root / "video.mp4", number)
                    tar.add(video, f"part/{number:04d}.mp4")
                    video.unlink()
                    add_text(tar, f"part/{number:04d}.{kinds[number % 3](label)[0]}", kinds[number % 3](label)[1])
    return root


def add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    """Adds a file with a text to an archive."""
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    tar.addfile(member, io.BytesIO(text.encode()))


def table(root: Path) -> Path:
    """A CSV of one's own, with parts and groups."""
    rows = [f"{n}.mp4,{label},0.25,,{side},person {n}" for side, n, label in _sides()]
    for _, number, _ in _sides():
        small_video(root / f"{number}.mp4", number)
    return _text(root / "mine.csv", "path,label,start_s,end_s,split,group", *rows)


def _arrow_table(root: Path, side: str) -> Any:
    """The rows of one side as ``datasets`` stores them."""
    import pyarrow

    videos, labels = [], []
    for at, number, _ in _sides():
        if at == side:
            path = small_video(root / "video.mp4", number)
            videos.append({"bytes": path.read_bytes(), "path": f"{number}.mp4"})
            labels.append(number % 2)
            path.unlink()
    kinds = {"video": {"_type": "Video"}, "label": {"names": list(CLASSES), "_type": "ClassLabel"}}
    video = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = [pyarrow.array(videos, video), pyarrow.array(labels, pyarrow.int64())]
    metadata = {"huggingface": json.dumps({"info": {"features": kinds}})}
    return pyarrow.table(columns, pyarrow.schema([("video", video), ("label", pyarrow.int64())], metadata))


def huggingface(root: Path) -> Path:
    """Parquet files as they lie in repositories of Hugging Face."""
    import pyarrow.parquet

    (root / "data").mkdir()
    for name, side in (("train", "train"), ("validation", "val")):
        file = root / "data" / f"{name}-00000-of-00001.parquet"
        pyarrow.parquet.write_table(_arrow_table(root, side), file, row_group_size=3)
    return root


def huggingface_saved(root: Path) -> Path:
    """What ``save_to_disk`` of ``datasets`` writes."""
    import pyarrow

    _text(root / "dataset_dict.json", json.dumps({"splits": ["train", "test"]}))
    for name, side in (("train", "train"), ("test", "val")):
        _text(root / name / "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        rows = _arrow_table(root, side)
        path = str(root / name / "data-00000-of-00001.arrow")
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, rows.schema) as stream:
            stream.write_table(rows, max_chunksize=3)
    return root


COPIES: Mapping[str, SmallCopy] = {
    "activitynet": SmallCopy(activitynet),
    "ava": SmallCopy(ava, multi_label=True),
    "charades": SmallCopy(charades, multi_label=True),
    "diving48": SmallCopy(diving48),
    "domsev": SmallCopy(domsev),
    "epic-kitchens": SmallCopy(epic_kitchens),
    "folders": SmallCopy(folders),
    "frame-lists": SmallCopy(frame_lists, multi_label=True),
    "frames": SmallCopy(frames),
    "hmdb51": SmallCopy(hmdb51),
    "huggingface": SmallCopy(huggingface, needs="pyarrow"),
    "kinetics": SmallCopy(kinetics),
    "lists": SmallCopy(lists),
    "mmaction2": SmallCopy(mmaction2),
    "something-something": SmallCopy(something_something),
    "table": SmallCopy(table),
    "ucf101": SmallCopy(ucf101),
    "webdataset": SmallCopy(webdataset),
}
