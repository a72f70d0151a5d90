"""The exceptions a caller of hwbench can meet, and the exit status each becomes on the command line.

    HwbenchError                      1  anything below, when no closer word fits
    +-- UsageError                    2  the request itself is wrong
    |   +-- UnknownName                  a device, space, block, ... that is not registered
    |   +-- InvalidValue                 a value outside what is allowed, a quantity without a unit
    |   |   +-- OtherRun                 a stored training that is not the one asked for
    |   +-- InvalidFile                  a file that does not validate: TOML, CSV, .pte, checkpoint, SQLite
    |   +-- NotMeasured                  a latency was asked for that no table row answers
    |   +-- WorkspaceError               no workspace, a read-only one, a full disk or one that fails
    |   +-- UnsupportedModule            a module or a size that a rewrite does not cover
    |   +-- VideoError                   a video that cannot be read (file and cause named)
    |   +-- MissingDependency            an optional package or tool that is not installed
    +-- DeviceError                   3  the device did not do its part
    |   +-- DeviceUnreachable            it cannot be reached
    |   +-- DeviceBusy                   another process, or another thread, measures on it
    |   +-- DeviceLost                   it went away in the middle of a command
    +-- InfeasibleBudget              4  no network of the space fits the budget
    +-- CheckFailed                   5  a check said no
        +-- ParityFailed                 the deployed model does not compute what the original computes
        +-- DelegationFailed             an operation stayed outside the delegate
        +-- NotCalibrated                int8 without calibration data
        +-- OverBudget                   the measured latency is above the budget

Every message says what was expected, what came, and what to type next.
"""

from __future__ import annotations

from typing import Any


class HwbenchError(Exception):
    """Base of all errors that hwbench raises on purpose; its text is meant for the person at the terminal."""

    exit_status = 1


class UsageError(HwbenchError):
    """The request is wrong: an argument, a name or a file."""

    exit_status = 2


class UnknownName(UsageError):
    """A name that is not known; the message lists the nearest known names."""


class InvalidValue(UsageError):
    """A value outside what is allowed."""


class OtherRun(InvalidValue):
    """A stored training is of other data, another network or another recipe than the one asked for.

    Args:
        message: What is said.
        changes: What differs, there and now.
    """

    def __init__(self, message: str, changes: str = "") -> None:
        super().__init__(message)
        self.changes = changes


class InvalidFile(UsageError):
    """A file that exists but does not validate; the message names the file."""


class NotMeasured(UsageError):
    """No row of the latency table answers the question; the message names the nearest rows and the command."""


class WorkspaceError(UsageError):
    """The workspace is missing, not writable, or its disk is full or fails."""


class UnsupportedModule(UsageError):
    """A module, attribute or size that a rewrite does not cover."""


class VideoError(UsageError):
    """A video file that cannot be read; the message names the file and the cause."""


class MissingDependency(UsageError):
    """An optional package or a tool is missing; the message holds the command that installs it."""


class DeviceError(HwbenchError):
    """The device did not do its part."""

    exit_status = 3


class DeviceUnreachable(DeviceError):
    """The device cannot be reached."""


class DeviceBusy(DeviceError):
    """Another process, or another thread of this one, holds the device; the message says which, and since when.

    Args:
        message: What is said.
        ours: Whether another thread of this process holds it.
    """

    def __init__(self, message: str, *, ours: bool = False) -> None:
        super().__init__(message)
        self.ours = ours


class DeviceLost(DeviceError):
    """The device went away while it was in use."""


class InfeasibleBudget(HwbenchError):
    """No network of the space fits the budgets; the message names the smallest latency or the nearest budgets.

    Args:
        message: What is said.
        excess: What the budgets are to be multiplied with until a network fits; infinity: not known.
    """

    exit_status = 4

    def __init__(self, message: str, excess: float = float("inf")) -> None:
        super().__init__(message)
        self.excess = excess


class CheckFailed(HwbenchError):
    """A check of the result said no."""

    exit_status = 5


class ParityFailed(CheckFailed):
    """The deployed model differs from the original by more than allowed.

    Attributes:
        quantization: The way to int8 that was asked for (``hwbench.deploy.QuantizationRecord``), with what it does to
            each block; None where blocks were not looked at.
    """

    def __init__(self, message: str, quantization: Any = None) -> None:
        super().__init__(message)
        self.quantization = quantization


class DelegationFailed(CheckFailed):
    """Operations stayed outside the delegate."""


class NotCalibrated(CheckFailed):
    """int8 was asked for without calibration data."""


class OverBudget(CheckFailed):
    """The measured latency is above the budget."""
