"""Self-contained HTML pages about a study or a device: figures, numbers, and the commands that make them again."""

from hwbench.reports.device import DeviceReport, gather_device
from hwbench.reports.exported import ExportedModel, read_exported
from hwbench.reports.page import device_page, page, write, write_device
from hwbench.reports.profiled import Missing
from hwbench.reports.study import StudyReport, gather

__all__ = [
    "DeviceReport",
    "ExportedModel",
    "Missing",
    "StudyReport",
    "device_page",
    "gather",
    "gather_device",
    "page",
    "read_exported",
    "write",
    "write_device",
]
