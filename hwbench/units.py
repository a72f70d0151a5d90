"""Quantities with units, as people write them. The only place that knows prefixes; inside, time is in seconds."""

from __future__ import annotations

import math
import re

from hwbench.errors import InvalidValue

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
# The largest whole number of 64 bits with a sign, which SQLite and torch take.
MOST_WHOLE = 2**63 - 1
# Linux runs at most so many processors (CONFIG_NR_CPUS of x86-64); of 100,000 threads of torch the process dies.
MOST_THREADS = 8192
# Of a whole; smaller parts of it are not told more exactly.
_LEAST_SHARE = 0.001
# 30 years: what waits so long does not overflow the clocks of the system.
_MOST_S = 1e9
# Powers of ten beyond are no floats.
_MOST_DIGITS = 308
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµ]*)\s*")


def parse_duration(text: str, *, name: str = "a duration", unit: str = "ms", least_s: float = 0.0) -> float:
    """Reads ``60ms``, ``"60 ms"``, ``1.5s`` as seconds.

    Args:
        text: What is read.
        name: What messages begin with.
        unit: What messages advise.
        least_s: The least time that is taken, in seconds; 0: any above zero.

    Raises:
        InvalidValue: No unit, an unknown unit, not a positive number, a shorter time than ``least_s``, or decades.
    """
    least = f"{least_s / _SECONDS[unit]:g}{unit}"
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InvalidValue(f'{name}: expected a positive number with a unit such as "60{unit}", got {text!r}')
    number, given = match.groups()
    if not given:
        example = least if float(number) * _SECONDS[unit] < least_s else f"{number}{unit}"
        raise InvalidValue(f'{name}: {text!r} has no unit; write for example "{example}"')
    if given not in _SECONDS:
        raise InvalidValue(f"{name}: unknown unit {given!r} in {text!r}; known units: {', '.join(_SECONDS)}")
    seconds = float(number) * _SECONDS[given]
    if not math.isfinite(seconds) or seconds <= 0:
        at_least = f"of at least {least}" if least_s else "above zero"
        raise InvalidValue(f"{name}: expected a finite time {at_least}, got {text!r}")
    if seconds > _MOST_S:
        raise InvalidValue(f"{name}: expected at most {_MOST_S:.0f} s, got {text!r}")
    if seconds < least_s:
        raise InvalidValue(f"{name}: expected at least {least}, got {text!r}")
    return seconds


def parse_share(text: str, *, name: str = "a share") -> float:
    """Reads ``2%``, ``2 %`` or ``0.02`` as a fraction above 0 and below 1.

    Raises:
        InvalidValue: It is neither, or out of range; the message begins with ``name``.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if rest.strip() or not 0 < share < 1:
        raise InvalidValue(f"{name}: expected a share such as 2% or 0.02, got {text!r}")
    return share


def format_duration(seconds: float) -> str:
    """Writes seconds for people: ``12.3 ms``, ``840 µs``, ``4 min 05 s``. What rounds to 1000 ms is ``1 s``."""
    short = float(f"{seconds:.3g}")
    if short >= 60:
        minutes, whole_s = divmod(int(max(seconds, 60)), 60)
        return f"{minutes} min {whole_s:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
    unit = next((unit for unit in ("s", "ms") if short >= _SECONDS[unit]), "µs")
    return f"{short / _SECONDS[unit]:.3g} {unit}"


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds, rounded to a nanosecond: the form in which ``--json`` prints times."""
    return round(seconds * 1e3, 6)


def rounded_up(value: float, digits: int) -> float:
    """The least number of so many significant digits that is not below a value above zero, rounding aside.

    Of values below 1e-300 fewer digits are kept.
    """
    scale = 10.0 ** min(digits - 1 - math.floor(math.log10(value)), _MOST_DIGITS)
    return math.ceil(value * scale * (1 - 1e-12)) / scale


def typed_duration(seconds: float) -> str:
    """Seconds as an option takes them, rounded up to six digits, and to whole nanoseconds: ``60.1234ms``."""
    nanoseconds = math.ceil(1e6 * rounded_up(1e3 * seconds, 6) * (1 - 1e-12))
    return f"{nanoseconds / 1e6:.12g}ms"


def typed_bytes(num_bytes: float) -> str:
    """Bytes as an option takes them, rounded up to whole bytes: ``2100000B``; whole binary prefixes are written."""
    whole = math.ceil(num_bytes * (1 - 1e-12))
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if whole % _BYTES[unit] == 0)
    return f"{whole // _BYTES[unit]}{unit}"


def format_rate(steps: int, seconds: float) -> str:
    """Steps a second, or a minute where that is less than one: ``2.5/s``, ``40/min``."""
    rate = steps / max(seconds, 1e-3)
    return f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.0f}/min"


def format_share(share: float) -> str:
    """Writes a share in tenths of a percent, none of something as nothing: ``8.3%``, ``less than 0.1%``."""
    if 0 < share < _LEAST_SHARE:
        return f"less than {_LEAST_SHARE:.1%}"
    return f"more than {1 - _LEAST_SHARE:.1%}" if 1 - _LEAST_SHARE < share < 1 else f"{share:.1%}"


def format_bytes(num_bytes: float) -> str:
    """Writes a size with a binary prefix: ``3.4 MiB``. What rounds to 1024 KiB is ``1.0 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(abs(num_bytes), 0 if unit == "B" else 1) < 1024 or unit == "GiB":
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    raise AssertionError("unreachable")


def parse_bytes(text: str, *, name: str = "a size") -> int:
    """Reads ``10GiB``, ``"500 MiB"`` as bytes.

    Raises:
        InvalidValue: No unit, an unknown unit, or not a finite number.
    """
    match = _QUANTITY.fullmatch(text)
    size = math.nan if match is None else float(match[1]) * _BYTES.get(match[2], math.nan)
    if not math.isfinite(size):
        raise InvalidValue(f'{name}: expected a size with a unit ({", ".join(_BYTES)}) such as "10GiB", got {text!r}')
    return int(size)


def parse_limit(text: str | None, name: str) -> int:
    """Reads the upper limit of a size as bytes; 0 where there is none.

    Raises:
        InvalidValue: No size, or none above zero.
    """
    limit = 0 if text is None else parse_bytes(text, name=name)
    if text is not None and limit < 1:
        raise InvalidValue(f"{name}: expected a size above zero, got {text!r}")
    return limit
