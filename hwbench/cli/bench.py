"""``hwbench bench``."""

from __future__ import annotations

from typing import Any

from hwbench.api.bench import bench
from hwbench.api.bench_engines import bench_engines
from hwbench.api.bench_request import ALL, BenchRequest
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say, text
from hwbench.cli.signals import ANEW
from hwbench.units import format_bytes


def _run(request: BenchRequest, as_json: bool) -> None:
    with listening() as listener:
        values = (bench_engines if request.runtime == ALL else bench)(request, listener).to_json()
    if as_json:
        emit(values, as_json=True)
    elif "engines" in values:
        _print_engines(values)
    else:
        _print_one(values)


def _print_one(values: dict[str, Any]) -> None:
    """The latency, then what is inside."""
    peak = values["peak_memory_bytes"]
    shown = {**values, "ci95_ms": _interval(values), "peak_memory_bytes": None if peak is None else format_bytes(peak)}
    shown["peak_memory"] = shown.pop("peak_memory_bytes")
    emit(shown, as_json=False)
    if "profile" in values:
        _print_profile(values["profile"], values["median_ms"])
    if "sustained" in values:
        _print_sustained(values["sustained"])


def _print_sustained(course: dict[str, Any]) -> None:
    """The latency at the end, what it rests on, and about ten points of the way there."""
    energy = course["energy"]
    power = energy["reason"] or (
        f"{energy['watts']:.3g} W, {energy['mj_per_execution']:.4g} mJ an execution ({energy['source']}, in steps of "
        f"{energy['resolution_watts']:.2g} W)"
    )
    low, high = course["ratio_ci95"]
    rows = {
        "sustained_ms": course["latency_ms"],
        "ci95_ms": _interval(course),
        "cool_ms": course["cool_ms"],
        "ratio": f"{course['ratio']:.3f} ({low:.3f} - {high:.3f})",
        "ended": course["ended"],
        "cpu_share": course["cpu_share"],
        "seconds": course["seconds"],
        "energy": power if energy["source"] else f"not readable: {power}",
    }
    print()
    emit(rows, as_json=False)
    points = course["course"]
    step = max(1, len(points) // 10)
    shown = [*points[:-1:step], points[-1]]
    print()
    print_table(
        ("at_s", "latency_ms", "temperature_celsius", "clock_mhz"),
        [[text(point[key]) for key in ("at_s", "latency_ms", "temperature_celsius", "clock_mhz")] for point in shown],
    )


def _print_profile(profile: dict[str, Any], median_ms: float) -> None:
    """A row a kind, then a row a block."""
    print()
    rows = [_row(group, "kind", median_ms) for group in profile["by_kind"]]
    whole = profile["operations_ms"]
    rows.append(("all operations", f"{whole:.4g}", "100.0%", f"{median_ms:.4g}", str(len(profile["operations"]))))
    if profile["unaccounted_ms"] is not None:
        rows.append(("not in operations", f"{profile['unaccounted_ms']:.4g}", "", "", ""))
    rows.append(("without a tracer", f"{median_ms:.4g}", "", "", ""))
    print_table(("kind", *_COLUMNS), rows)
    if profile["by_block"]:
        print()
        print_table(("block", *_COLUMNS), [_row(group, "block", median_ms) for group in profile["by_block"]])


_COLUMNS = ("ms", "share", "of_median_ms", "operations")


def _row(group: dict[str, Any], key: str, median_ms: float) -> tuple[str, ...]:
    share = group["share"]
    return group[key], f"{group['ms']:.4g}", f"{share:.1%}", f"{share * median_ms:.4g}", str(group["count"])


def _print_engines(values: dict[str, Any]) -> None:
    """A row an engine, the fastest first; who is left out on stderr."""
    title = f"{values['model']} in {values['precision']} on {values['device']}, {values['threads']} thread(s)"
    rows = [
        (
            f"{engine['runtime']} {engine['version']}",
            *(f"{engine[key]:.4g}" for key in ("median_ms", "p90_ms")),
            _interval(engine),
            f"{'~' if engine['noise'] else ''}{engine['ratio']:.2f}",
        )
        for engine in values["engines"]
    ]
    print_table(("engine", "median_ms", "p90_ms", "ci95_ms", "of the fastest"), rows, title=title)
    for one in values["left_out"]:
        say(f"left out: {one['runtime']}: {one['reason']}")


def _interval(values: dict[str, Any]) -> str:
    return " - ".join(f"{bound:.4g}" for bound in values["ci95_ms"])


def _after(request: BenchRequest) -> str:
    """What begins anew after an interruption: the windows of ``--sustained`` are kept for a while."""
    return f"{ANEW}, but for windows that are kept" if request.sustained else ANEW


add_command(app, "bench", BenchRequest, _run, after=_after)
