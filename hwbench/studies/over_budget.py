"""What is said where no candidate was measured within the budgets."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from operator import itemgetter

from hwbench.errors import OverBudget
from hwbench.latency import profile_command, validate_command
from hwbench.latency.table_source import TableSource
from hwbench.printable import counted
from hwbench.specs import Precision, Target
from hwbench.specs.model_name import named_models
from hwbench.studies.candidates import Candidate
from hwbench.studies.settings import INTERPOLATED, Settings, transferred_from
from hwbench.units import format_duration


def over_budget(
    study: str, settings: Settings, measured: Sequence[Candidate], scored: Sequence[Candidate]
) -> OverBudget:
    """Names what the candidates took, or why they could not be measured, and what to do.

    Args:
        study: Its name.
        settings: What it searches for.
        measured: The candidates that were measured, or failed to be.
        scored: All networks with a score, by the tables of today; those that cannot be predicted among them.
    """
    times = [(c.measured_s, c) for c in measured if c.measured_s is not None]
    if not scored:
        return OverBudget(f"study {study!r}: no candidate has a score; evaluator {settings.evaluator!r} gave none")
    if not measured:
        return OverBudget(f"study {study!r}: {_unmeasured(settings, scored)}")
    if not times:
        reasons = "; ".join(sorted({c.failure for c in measured}))
        return OverBudget(f"study {study!r}: no candidate could be measured on the device: {reasons}")
    if settings.further_budgets_ms:
        return OverBudget(f"study {study!r}: {_on_devices(settings, measured)}")
    seconds, fastest = min(times, key=itemgetter(0))
    return OverBudget(
        f"study {study!r}: none of the {len(times)} candidates that were measured is within "
        f"{format_duration(settings.budget_s)}; the fastest takes {format_duration(seconds)}; give a larger budget "
        f"or more --trials{_check(settings, {settings.device: fastest})}"
    )


def _unmeasured(settings: Settings, scored: Sequence[Candidate]) -> str:
    """Why no network with a score was worth measuring: the tables of today put it too far beyond, or lack a row."""
    by_network = {c.architecture: c for c in scored}.values()
    predicted = [c for c in by_network if c.is_predicted]
    reasons, advice = list[str](), list[str]()
    if predicted:
        nearest = min(predicted, key=lambda c: _share(settings, c)).predicted(settings.device)
        on = {device: f" on {device}" if len(nearest) > 1 else "" for device in nearest}
        limits = [settings.limit_text(limit) + on[device] for device, limit in settings.budgets_ms.items()]
        times = [format_duration(seconds) + on[device] for device, seconds in nearest.items()]
        reasons.append(
            f"predicted too far beyond {' and '.join(limits)} to be measured: {len(predicted)}, the nearest takes "
            f"{' and '.join(times)}"
        )
        advice.append("give a larger budget or more --trials")
    if len(predicted) < len(by_network):
        lacking = {
            device
            for c in by_network
            for device, seconds in c.predicted(settings.device).items()
            if not math.isfinite(seconds)
        }
        reasons.append(f"with a block that the table lacks by now: {len(by_network) - len(predicted)}")
        advice += [f"measure the rows: {_profile(settings, device)}" for device in sorted(lacking)]
    return (
        f"{counted(len(by_network), 'network')} with a score, none of which may fit by the tables of today; "
        f"{'; '.join([*reasons, ', or '.join(advice)])}"
    )


def _share(settings: Settings, candidate: Candidate) -> float:
    """The largest share of its budget that a network is predicted to take, over the devices."""
    limits = settings.budgets_ms
    return max(1e3 * seconds / limits[device] for device, seconds in candidate.predicted(settings.device).items())


def _on_devices(settings: Settings, measured: Sequence[Candidate]) -> str:
    nearest: dict[str, Candidate] = {}
    for device in settings.budgets_ms:
        taken = {c.measured(settings.device).get(device, math.inf): c for c in measured}
        if min(taken) < math.inf:
            nearest[device] = taken[min(taken)]
    fastest = [f"{format_duration(c.measured(settings.device)[device])} on {device}" for device, c in nearest.items()]
    limits = [f"{limit:g} ms on {device}" for device, limit in settings.budgets_ms.items()]
    failures = "".join(f"; {reason}" for reason in sorted({c.failure for c in measured if c.failure}))
    return (
        f"none of the {len(measured)} candidates that were measured is within {' and '.join(limits)}; the fastest take "
        f"{' and '.join(fastest)}{failures}; give larger budgets or more --trials{_check(settings, nearest)}"
    )


def _check(settings: Settings, nearest: Mapping[str, Candidate]) -> str:
    """How to check the tables that promised more, by the space of the fastest network on each device.

    Networks are drawn for it: a model of the user's own has no other one.
    """
    commands = [
        _validate(settings, device, one.space) for device, one in nearest.items() if not named_models([one.space])
    ]
    tables = "table" if len(commands) == 1 else "tables"
    return f", or check the {tables}: {'; '.join(commands)}" if commands else ""


def _profile(settings: Settings, device: str) -> str:
    """The command that measures what the table of a device lacks."""
    typed = {space: next((name for name, _ in named_models([space])), space) for space in settings.spaces}
    target, precision = _target(settings, device), Precision.parse(settings.precision)
    spaces = shlex.quote(",".join(typed.values()))
    return profile_command(target, precision, spaces, variant=settings.variant, classes=settings.num_classes)


def _validate(settings: Settings, device: str, space: str) -> str:
    """The command that holds the table of a device, filled in as the search filled it in, against networks."""
    target, precision = _target(settings, device), Precision.parse(settings.precision)
    command = validate_command(target, precision, shlex.quote(space), settings.variant, settings.num_classes)
    other = transferred_from(settings.missing_rows)
    if other is not None and not TableSource.parse(other).is_of(device, precision, target.threads):
        return f"{command} --transfer-from {shlex.quote(other)}"
    return f"{command} --interpolate" if settings.missing_rows == INTERPOLATED else command


def _target(settings: Settings, device: str) -> Target:
    targets = map(Target.parse, (settings.target, *settings.further_budgets_ms))
    return next(target for target in targets if target.device == device)
