"""Whose table stands in for rows that were not measured, as ``--transfer-from`` names it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.specs import Precision, Target

_EXPECTED = "expected a device, a precision, a number of threads such as t4, or some of them: s9, fp32, s9/fp32/t4"


@dataclass(frozen=True)
class TableSource:
    """Where a table differs from the one that lacks rows; what is None is the same in both."""

    text: str
    device: str | None = None
    precision: Precision | None = None
    threads: int | None = None

    @classmethod
    def parse(cls, text: str) -> TableSource:
        """Reads ``DEVICE``, ``PRECISION``, ``tTHREADS``, or some of them with ``/`` between.

        Raises:
            InvalidValue: One of them is named twice, or nothing is.
        """
        from hwbench.specs import Precision

        precisions = {precision.value: precision for precision in Precision}
        device, precision, threads = None, None, None
        for word in text.split("/"):
            number = re.fullmatch(r"t([1-9]\d{0,3})", word)
            if word in precisions and precision is None:
                precision = precisions[word]
            elif number and threads is None:
                threads = int(number[1])
            elif word and word not in precisions and not number and device is None:
                device = word
            else:
                raise InvalidValue(f"--transfer-from {text}: {_EXPECTED}")
        return cls(text, device, precision, threads)

    def is_of(self, device: str, precision: str, threads: int) -> bool:
        """Whether it is the table of this device, precision and number of threads."""
        other = self.device or device, self.precision or precision, self.threads or threads
        return other == (device, precision, threads)

    def check(self, device: str, precision: str, threads: int) -> None:
        """Refuses the table that lacks the rows.

        Raises:
            InvalidValue: It is of this device, precision and number of threads.
        """
        if self.is_of(device, precision, threads):
            raise InvalidValue(
                f"--transfer-from {self.text}: rows of {device}/{precision}/t{threads} itself are missing; name "
                "another device, precision or number of threads, such as s9, fp32, t4"
            )

    def of(self, target: Target, precision: Precision) -> tuple[Target, Precision]:
        """The target and the precision whose table stands in for that of these.

        Raises:
            InvalidValue: As ``check``.
        """
        self.check(target.device, precision, target.threads)
        other = replace(target, device=self.device or target.device, threads=self.threads or target.threads)
        return other, self.precision or precision
