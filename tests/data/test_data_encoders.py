"""19-28: the synthetic set needs no encoder under the GPL, and sets of before stay as they are."""

import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from hwbench.data import SyntheticSpec, read_frames
from hwbench.data.encoding import _OPTIONS, write_video
from hwbench.data.synthetic import prepare, render
from hwbench.errors import MissingDependency
from hwbench.workspace import Workspace

SMALL = SyntheticSpec(train_per_class=1, val_per_class=1, size=32, frames=8)


def codec_of(path: Path) -> str:
    with av.open(str(path)) as file:
        return file.streams.video[0].codec_context.name


def test_19_28_the_set_is_encoded_by_what_is_free_of_the_gpl(tmp_path: Path) -> None:
    root = prepare(Workspace(tmp_path), SMALL)
    assert {codec_of(path) for path in root.rglob("*.mp4")} == {"mpeg4"}


@pytest.mark.parametrize("codec", _OPTIONS)
def test_19_28_every_encoder_keeps_the_picture(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwbench.data.encoding.av.codecs_available", {codec})
    spec = SyntheticSpec()
    for name in ("grow", "move-left"):
        frames = render(name, "train", 0, spec)
        write_video(tmp_path / "film.mp4", frames, fps=spec.fps)
        assert codec_of(tmp_path / "film.mp4") in {"mpeg4", "h264"}
        read = read_frames(tmp_path / "film.mp4", range(spec.frames)).astype(float)
        # 1.5 of 255 is what 4:2:0 colour alone costs here.
        assert np.abs(read - frames).mean() < 2.5
        assert np.abs(read - frames).max(axis=(1, 2, 3)).max() < 100


def test_19_28_without_any_encoder_the_error_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwbench.data.encoding.av.codecs_available", {"h264", "gif"})
    with pytest.raises(MissingDependency, match="mpeg4, libx264"):
        write_video(tmp_path / "film.mp4", np.zeros((2, 16, 16, 3), np.uint8), fps=12)


def test_19_28_the_same_frames_give_the_same_file_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from hwbench.data.encoding import write_video\n"
        "from hwbench.data.synthetic import SyntheticSpec, render\n"
        "write_video(Path(sys.argv[1]), render('grow', 'val', 0, SyntheticSpec()), fps=12)\n"
    )
    files = [tmp_path / "one.mp4", tmp_path / "two.mp4"]
    for path in files:
        subprocess.run([sys.executable, "-P", "-c", code, str(path)], check=True)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_19_28_a_complete_set_of_before_stays_in_use_and_is_never_mixed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    new = prepare(workspace, SMALL)
    old = new.rename(new.with_name(SMALL.names[1]))
    assert prepare(workspace, SMALL) == old
    before = {path: path.read_bytes() for path in old.rglob("*.mp4")}
    next(iter(before)).unlink()
    assert prepare(workspace, SMALL) == new
    assert set(old.rglob("*.mp4")) == {*before} - {next(iter(before))}
    assert len([*new.rglob("*.mp4")]) == len(before)
