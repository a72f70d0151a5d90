from pathlib import Path

import pytest
from video_files import MakeVideo, cut, write, write_audio


@pytest.fixture
def make_video(tmp_path: Path) -> MakeVideo:
    """``make_video(name, **how)`` writes a video below the test's folder."""

    def make(name: str, **how: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(path, **how)  # type: ignore[arg-type]

    return make


@pytest.fixture
def broken(make_video: MakeVideo, tmp_path: Path) -> dict[str, Path]:
    """Files that cannot be read, by what is wrong with them."""
    good = make_video("good.mp4")
    front = make_video("front.mp4", container={"movflags": "faststart"})
    text = tmp_path / "text.mp4"
    text.write_text("this is not a video\n" * 50)
    empty = tmp_path / "empty.mp4"
    empty.write_bytes(b"")
    folder = tmp_path / "folder.mp4"
    folder.mkdir()
    return {
        "truncated": cut(good, tmp_path / "truncated.mp4", 0.5),
        "truncated behind the index": cut(front, tmp_path / "front-truncated.mp4", 0.7),
        "truncated mkv": cut(make_video("good.mkv"), tmp_path / "truncated.mkv", 0.5),
        "truncated avi": cut(make_video("good.avi", codec="mpeg4"), tmp_path / "truncated.avi", 0.8),
        "empty": empty,
        "text": text,
        "missing": tmp_path / "missing.mp4",
        "folder": folder,
        "no picture": write_audio(tmp_path / "sound.mp4"),
        "no frames": make_video("none.mp4", count=0),
    }
