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
.clip img { display: block; width: 100%; max-width: max-content; height: auto; border-radius: 4px; }
.clip { margin: 6px 0 10px; }
.times { display: flex; font-variant-numeric: tabular-nums; }
.times span { flex: 1; text-align: center; white-space: nowrap; overflow: hidden; }
.file { overflow-wrap: anywhere; margin: 12px 0 2px; }
"""


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
    _, _, width, _ = clip.pictures.shape
    total = width * len(clip.times_s)
    picture = element(
        "img",
        src="data:image/jpeg;base64," + base64.b64encode(clip.strip()).decode(),
        width=str(total),
        alt=f"{len(clip.times_s)} frames of {', '.join(video.labels)}, transform of {clip.transform}",
    )
    times = element("div", *(element("span", f"{time:.2f} s") for time in clip.times_s), class_="times")
    caption = element("figcaption", f"transform of {clip.transform}")
    return element("figure", caption, picture, element("div", times, style=f"max-width: {total}px"), class_="clip")
