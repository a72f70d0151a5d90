"""Self-contained HTML pages about a study, a device or training runs: figures, numbers, and how to make them again."""

from hwbench.reports.device import DeviceReport, gather_device
from hwbench.reports.exported import ExportedModel, read_exported
from hwbench.reports.page import device_page, page, runs_page, write, write_device, write_runs
from hwbench.reports.profiled import Missing
from hwbench.reports.run import RunReport, RunsReport, gather_runs, is_run
from hwbench.reports.study import StudyReport, gather

__all__ = [
    "DeviceReport",
    "ExportedModel",
    "Missing",
    "RunReport",
    "RunsReport",
    "StudyReport",
    "device_page",
    "gather",
    "gather_device",
    "gather_runs",
    "is_run",
    "page",
    "read_exported",
    "runs_page",
    "write",
    "write_device",
    "write_runs",
]
