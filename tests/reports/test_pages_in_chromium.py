"""What readers see: nothing of a page is cut off, in a window, on a phone and on paper."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from chromium import Chromium

from hwbench.data.sheets import ShownClip, ShownVideo
from hwbench.reports.contact_sheet import sheet
from hwbench.reports.device_figures import family_gains
from hwbench.reports.drawing import blank
from hwbench.reports.families import BlockFamily
from hwbench.reports.fragments import figure, wide
from hwbench.reports.gains import FamilyGain
from hwbench.reports.page import document
from hwbench.reports.run import ClassScore
from hwbench.reports.run_figures import class_accuracy
from hwbench.reports.search_figures import importance

A4 = {"paperWidth": 8.27, "paperHeight": 11.69}
# The texts of figures that end beyond their place.
CUT_OFF = """[...document.querySelectorAll(".plot")].flatMap((place) => {
  const box = place.getBoundingClientRect();
  return [...place.querySelectorAll("text")].filter((text) => {
    const { left, right, width } = text.getBoundingClientRect();
    return width && (left < box.left - 0.5 || right > box.right + 0.5);
  }).map((text) => text.textContent);
})"""
# How wide the place of each figure is, and what is drawn in it.
WIDTHS = """[...document.querySelectorAll(".plot")].map((place) =>
  [place, place.querySelector(".main-svg")].map((one) => Math.round(one.getBoundingClientRect().width)))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    opened = Chromium(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


def drawn() -> go.Figure:
    chart = blank(go.Figure(go.Scatter(x=[1, 2, 3], y=[1, 2, 3])))
    chart.update_xaxes(title_text="latency (ms)")
    return chart


def test_figures_are_printed_whole(browser: Chromium, tmp_path: Path) -> None:
    """Those that scroll in a window are scaled on paper, where nobody scrolls, and the others are drawn again."""
    parts = [figure("one", drawn(), "One."), wide(figure("broad", drawn(), "Broad."), 1400)]
    parts.append(wide(figure("slim", drawn(), "Slim."), 300))
    (tmp_path / "page.html").write_text(document("page", parts, figures=True))
    browser.open(tmp_path / "page.html", 1200)
    on_screen = [[1000, 1000], [1400, 1400], [1000, 1000]]
    assert browser.run(WIDTHS) == on_screen
    seen = f"window.seen = {{ widths: {WIDTHS}, cut: {CUT_OFF} }}"
    browser.run(f'matchMedia("print").addEventListener("change", (now) => {{ if (now.matches) {seen}; }}); 0')
    browser.call("Page.printToPDF", **A4)
    assert browser.run("seen.cut") == []
    assert browser.run("seen.widths.every(([place, svg]) => 600 < svg && svg <= place && place < 760)")
    assert browser.run("one.querySelector('.xtitle').getBoundingClientRect().height > 10")
    assert browser.run(WIDTHS) == on_screen


def test_texts_of_figures_end_within_them_on_a_phone(browser: Chromium, tmp_path: Path) -> None:
    names = ["a class with a name as long as names get", "b", "c"]
    scores = [ClassScore(name, value, 20, None) for name, value in zip(names, (0.1, 0.5, 1.0), strict=True)]
    families = [BlockFamily("x3d", "3x3x3", "swish", True, stride, 0, "auto") for stride in (1, 2)]
    gains = [FamilyGain(family, 1.5, 0.9, 2.2, 3, 1) for family in families]
    shares = {"a choice with a long name": 1.0, "s1.depth": 0.0001}
    charts = {"scores": class_accuracy(scores), "gains": family_gains(gains), "shares": importance(shares)}
    parts = [figure(name, chart, "Caption.") for name, chart in charts.items()]
    (tmp_path / "page.html").write_text(document("page", parts, figures=True))
    browser.open(tmp_path / "page.html", 400)
    assert browser.run(CUT_OFF) == []
    assert browser.run("document.querySelectorAll('.xtitle, .ytitle').length") == 6
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=900, deviceScaleFactor=1, mobile=False)
    browser.wait_until("document.querySelector('.main-svg').getBoundingClientRect().width < 340")
    assert browser.run(CUT_OFF) == []


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("pixels", [16, 160, 1024])
def test_times_of_frames_are_readable(width: int, pixels: int, browser: Chromium, tmp_path: Path) -> None:
    clip = ShownClip("train", np.zeros((33, 8, pixels, 3), np.uint8), tuple(1000 + number / 25 for number in range(33)))
    page = sheet("clips", [], [ShownVideo("a.mp4", ("run",), clips=(clip,))])
    (tmp_path / "sheet.html").write_text(page)
    browser.open(tmp_path / "sheet.html", width)
    boxes = browser.run(
        "[...document.querySelectorAll('.frame')].map((frame) => ['span', 'img'].map((name) => {"
        "  const box = frame.querySelector(name).getBoundingClientRect();"
        "  return [box.left, box.right, box.top]; }))"
    )
    assert len(boxes) == 33
    assert browser.run("document.documentElement.scrollWidth") <= width
    for (times, picture), (later, _) in pairwise(boxes):
        assert times[1] < later[0] or times[2] < later[2]
        assert picture[1] - picture[0] <= min(pixels, 240)
    assert all(right <= width for frame in boxes for _, right, _ in frame)
    assert len({times[2] for times, _ in boxes}) > 2
