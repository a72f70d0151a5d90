"""Budgets that are to hold for minutes: what they are for a cool device, by the ratios that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.bench_sustained import sustained_ratio
from hwbench.api.listener import Listener
from hwbench.api.prediction import installed_target
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.api.search_request import SearchRequest
    from hwbench.studies.settings import Settings
    from hwbench.workspace import Workspace


# Settings that a study for minutes keeps of its budgets.
_BUDGETS = ("budget_ms", "smaller_budgets_ms", "further_budgets_ms", "sustained")


def for_minutes(request: SearchRequest, workspace: Workspace, listener: Listener) -> Mapping[str, float]:
    """How many times longer a network takes for minutes than on the cool device, by device; empty where not asked for.

    A ratio below 1, which is noise, counts as 1.

    Raises:
        NotMeasured: No latency has settled on a device yet; says what to type.
        UnknownName: No such device.
    """
    ratios: dict[str, float] = {}
    if not request.sustained:
        return ratios
    from hwbench.devices import load_device

    for name in request.devices:
        device = load_device(workspace, name)
        target = installed_target(device, request.runtime, request.threads)
        course = sustained_ratio(workspace, device, target, request.precision)
        ratio, low, high = course.ratio
        ratios[name] = round(max(1.0, ratio), 4)
        listener.say(
            f"for minutes, {name} takes {ratio:.3f} ({low:.3f} to {high:.3f}) times as long as cool: measured with "
            f"{course.facts.model} at {course.facts.started_at}"
        )
    return ratios


def cooled(request: SearchRequest, ratios: Mapping[str, float]) -> SearchRequest:
    """The request with budgets of the cool device, to which tables and measurements belong.

    Each budget is divided by the ratio of its device; without ratios the request comes back as it is.
    """
    if not ratios:
        return request
    if len(ratios) == 1:
        ratio = next(iter(ratios.values()))
        limits = [limit / ratio for limit in request.front_s]
    else:
        limits = [request.budgets_s[name] / ratio for name, ratio in ratios.items()]
    return replace(request, budget=",".join(f"{1e3 * limit:.6g}ms" for limit in limits))


def begun_for_minutes(
    request: SearchRequest,
    ratios: Mapping[str, float],
    settings_by: Callable[[Mapping[str, float]], Settings],
    workspace: Workspace,
    listener: Listener,
) -> tuple[str | None, Mapping[str, float]]:
    """The study that a search for minutes goes on with, and its ratios.

    A study that was begun with the same budgets keeps its ratios, whatever has been measured since. One without a name
    of its own is called by these budgets; earlier versions called it by those of the cool device.

    Args:
        request: What is asked for, with budgets for minutes.
        ratios: Those of today; empty: the search is not for minutes.
        settings_by: Settings of the request by ratios.
        workspace: Has the studies.
        listener: Hears the ratios of the study, and the budgets of the cool device.

    Returns:
        The name of the study, None where it has its default one; the ratios.

    Raises:
        WorkspaceError: The storage of the study cannot be reached.
    """
    from hwbench.studies.stored_settings import stored_settings

    if not ratios:
        return request.study, ratios

    def kept_ratios(name: str) -> dict[str, float]:
        """Those of a study that was begun with the same budgets; empty where there is none."""
        stored = stored_settings(workspace.studies / name, request.study_storage)
        kept = stored.get("sustained")
        if not isinstance(kept, dict) or kept.keys() != ratios.keys() or not all(map(_is_ratio, kept.values())):
            return {}
        kept = {device: kept[device] for device in ratios}
        settings = settings_by(kept).as_dict()
        return kept if all(settings.get(key) == stored.get(key) for key in _BUDGETS) else {}

    default = settings_by(ratios).default_study
    study, name = request.study, request.study or default
    kept = kept_ratios(name)
    if study is None and not stored_settings(workspace.studies / name, request.study_storage):
        of_before = {folder.name: kept_ratios(folder.name) for folder in _older_names(workspace, settings_by(ratios))}
        same = [one for one, its in of_before.items() if its]
        if same:
            name = study = next((one for one in same if of_before[one] == ratios), same[-1])
            kept = of_before[name]
    if kept and kept != ratios:
        began, today = map(_words, (kept, ratios))
        listener.say(f"study {name} goes on with the ratio it began with, {began}; today's is {today}")
    ratios = kept or ratios
    cool = cooled(request, ratios)
    limits = cool.front_s if len(ratios) == 1 else cool.budgets_s.values()
    listener.say(f"budget of the cool device: {', '.join(map(format_duration, limits))}")
    return study, ratios


def _older_names(workspace: Workspace, settings: Settings) -> list[Path]:
    """Folders of studies that differ from the default name in their budgets, the one that was changed last at the end.

    Earlier versions called a study by its budgets of the cool device.
    """
    budgets = f"_{settings.asked_text}_"
    folders = workspace.studies.glob(settings.default_study.replace(budgets, "_*ms_", 1))
    return sorted(folders, key=lambda folder: folder.stat().st_mtime)


def _is_ratio(value: object) -> bool:
    return isinstance(value, int | float) and 1 <= value < math.inf


def _words(ratios: Mapping[str, float]) -> str:
    """``1.25``, of several devices ``s9 1.25 and pi5 1.1``."""
    if len(ratios) == 1:
        return f"{next(iter(ratios.values())):.5g}"
    return " and ".join(f"{device} {ratio:.5g}" for device, ratio in ratios.items())
