"""The page of a contact sheet: clips of each class as a network sees them, with their labels and times."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from hwbench.data.sheets import ShownClip, ShownVideo
from hwbench.reports.fragments import facts, missing
from hwbench.reports.markup import Html, element
from hwbench.reports.page import document, save

_STYLE = """
.clip { margin: 6px 0 10px; break-inside: auto; }
.clip figcaption { break-after: avoid; }
.frames { display: flex; flex-wrap: wrap; gap: 4px; }
.frame { display: flex; flex-direction: column; align-items: center; break-inside: avoid; }
.frame img { display: block; max-width: 100%; height: auto; border-radius: 4px; }
.frame span { font-size: 0.85rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.file { overflow-wrap: anywhere; margin: 12px 0 2px; }
"""
# Pixels at which a frame is drawn at most: four stand in a row of the page, and two on a phone.
_WIDEST = 240


def write_sheet(out: Path, title: str, about: Sequence[tuple[str, str]], videos: Sequence[ShownVideo]) -> None:
    """Writes the page.

    Args:
        out: The HTML file.
        title: Its heading.
        about: Names and values that stand below it.
        videos: Those of one class stand together.

    Raises:
        WorkspaceError: The file cannot be written.
    """
    save(out, sheet(title, about, videos))


def sheet(title: str, about: Sequence[tuple[str, str]], videos: Sequence[ShownVideo]) -> str:
    """The whole page; it loads nothing."""
    parts = [
        element("h1", title),
        element("p", "The frames of each clip after the transforms, in the order in which the network gets them."),
        facts(*about),
    ]
    for labels, group in groupby(videos, key=lambda video: video.labels):
        parts.append(element("h2", ", ".join(labels) or "no label"))
        parts += [_video(video) for video in group]
    return document(f"{title}: hwbench data show", parts, style=_STYLE)


def _video(video: ShownVideo) -> Html:
    name = element("p", element("code", video.name), f" {video.described}", class_="file")
    if video.fault:
        return element("div", name, missing(video.fault))
    return element("div", name, *(_clip(clip, video) for clip in video.clips))


def _clip(clip: ShownClip, video: ShownVideo) -> Html:
    count, _, width, _ = clip.pictures.shape
    # As wide as its time at least, whatever the size of the pictures.
    style = f"width: max(5em, min({min(width, _WIDEST)}px, 50% - 2px))"
    frames = []
    for number, (file, time_s) in enumerate(zip(clip.files(), clip.times_s, strict=True), start=1):
        picture = element(
            "img",
            src="data:image/jpeg;base64," + base64.b64encode(file).decode(),
            width=str(width),
            alt=f"frame {number} of {count} of {', '.join(video.labels)}, transform of {clip.transform}",
        )
        frames.append(element("div", picture, element("span", f"{time_s:.2f} s"), class_="frame", style=style))
    caption = element("figcaption", f"transform of {clip.transform}")
    return element("figure", caption, element("div", *frames, class_="frames"), class_="clip")
