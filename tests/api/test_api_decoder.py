"""``--decoder`` of commands that look at videos beside training: what is asked for reads them."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from micro_workspace import NETWORK, SPACE, VIDEOS, make

import hwbench
from hwbench.api.models import resolve_model
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.data import ClipSpec, Reading
from hwbench.data.decoders import PYAV, decoders
from hwbench.data.decoding import VideoInfo
from hwbench.data.media import OpenVideo, VideoSource
from hwbench.deploy import open_calibration, open_validation
from hwbench.deploy.source import randomly_weighted
from hwbench.errors import UnknownName
from hwbench.workspace import Workspace

NAME = "counting"


class Counting:
    """PyAV, and the names of what was opened."""

    opened: ClassVar[list[str]] = []
    identity = NAME

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        self.opened.append(source.name)
        return PYAV.open(source, info)


@pytest.fixture(scope="module", autouse=True)
def inside(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = make(tmp_path_factory.mktemp("api-decoder") / "bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.root)
        yield made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the decoder was asked for; its name is known meanwhile."""
    get = decoders.get
    monkeypatch.setattr(decoders, "get", lambda name: Counting if name == NAME else get(name))
    Counting.opened.clear()
    return Counting.opened


def test_a_page_is_made_with_it(opened: list[str]) -> None:
    request = hwbench.ShowDataRequest(data=VIDEOS, decoder=NAME, per_class=1, most_classes=2, size=32)
    videos = hwbench.show_data(request).videos
    assert set(opened) == set(videos)
    assert len(opened) >= 2


@pytest.mark.parametrize(
    ("asked", "shown"),
    [({}, "4 frames over 0.3 s"), ({"span": "1 s"}, "4 frames over 1.0 s"), ({"stride": 2}, "4x2")],
)
def test_a_page_shows_clips_of_the_span_that_a_space_chose(
    inside: Workspace, asked: dict[str, Any], shown: str
) -> None:
    text = SPACE.replace('"micro"', '"spans"').replace("[input]", "[input]\nspan_s = [0.3, 2]")
    (inside.root / "search_spaces" / "spans.toml").write_text(text)
    key = NETWORK.replace("micro:", "spans:").replace(",resolution=32", ",resolution=32,span_s=0.3")
    request = hwbench.ShowDataRequest(data=VIDEOS, architecture=key, per_class=1, most_classes=1, **asked)
    page = hwbench.show_data(request).page.read_text()
    assert f"{shown}, 32 x 32 pixels" in page


def test_an_export_calibrates_and_validates_with_it(inside: Workspace, opened: list[str]) -> None:
    network = resolve_model(inside, NETWORK, 8)
    original = randomly_weighted(network, ClipSpec(4, stride=2))
    for found in (
        open_calibration(inside, VIDEOS, original, count=2, reading=Reading(NAME)),
        open_validation(inside, VIDEOS, original, count=2, reading=Reading(NAME)),
    ):
        opened.clear()
        assert len(list(found.views())) == 2
        assert len(set(opened)) == 2


def test_trainings_of_a_study_read_with_it(inside: Workspace, opened: list[str]) -> None:
    clip = resolve_model(inside, NETWORK, 8).input
    plain, counted = (StudyData(inside, VIDEOS, Fidelity(1), name).clips(clip, 2, 0) for name in ("pyav", NAME))
    np.testing.assert_array_equal(plain, counted)
    assert opened
    assert StudyData(inside, VIDEOS, Fidelity(1), NAME).__reduce__()[1][3] == NAME  # workers are told


@pytest.mark.parametrize(
    "run",
    [
        lambda: hwbench.show_data(hwbench.ShowDataRequest(data=VIDEOS, decoder="pyov")),
        lambda: hwbench.export(
            hwbench.ExportRequest(
                model=NETWORK, weights="random", classes=8, data=VIDEOS, out=Path("file"), decoder="pyov", threads=1
            )
        ),
    ],
)
def test_an_unknown_one_is_refused_with_those_there_are(run: Any) -> None:
    with pytest.raises(UnknownName, match=r"pyov.*pyav"):
        run()
