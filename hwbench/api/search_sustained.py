"""Budgets that are to hold for minutes: what they are for a cool device, by the ratios that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hwbench.api.bench_sustained import sustained_ratio
from hwbench.api.listener import Listener
from hwbench.api.prediction import installed_target
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.api.search_request import SearchRequest
    from hwbench.workspace import Workspace


def for_minutes(
    request: SearchRequest, workspace: Workspace, listener: Listener
) -> tuple[SearchRequest, Mapping[str, float]]:
    """The request with budgets of the cool device, to which tables and measurements belong, and the ratio by device.

    Each budget is divided by the ratio of its device; a ratio below 1, which is noise, counts as 1. A request that asks
    for no such budgets comes back as it is.

    Raises:
        NotMeasured: No latency has settled on a device yet; says what to type.
        UnknownName: No such device.
    """
    if not request.sustained:
        return request, {}
    from hwbench.devices import load_device

    ratios: dict[str, float] = {}
    for name in request.devices:
        device = load_device(workspace, name)
        target = installed_target(name, request.runtime, request.threads)
        course = sustained_ratio(workspace, device, target, request.precision)
        ratio, low, high = course.ratio
        ratios[name] = round(max(1.0, ratio), 4)
        listener.say(
            f"for minutes, {name} takes {ratio:.3f} ({low:.3f} to {high:.3f}) times as long as cool: measured with "
            f"{course.facts.model} at {course.facts.started_at}"
        )
    if len(ratios) == 1:
        ratio = next(iter(ratios.values()))
        limits = [limit / ratio for limit in request.front_s]
    else:
        limits = [request.budgets_s[name] / ratio for name, ratio in ratios.items()]
    listener.say(f"budget of the cool device: {', '.join(map(format_duration, limits))}")
    return replace(request, budget=",".join(f"{1e3 * limit:.6g}ms" for limit in limits)), ratios
