"""One self-contained HTML page about a study: figures, numbers, and the commands that make them again."""

from hwbench.report.exported import ExportedModel, read_exported
from hwbench.report.page import page, write
from hwbench.report.profiled import Missing
from hwbench.report.study import StudyReport, gather

__all__ = ["ExportedModel", "Missing", "StudyReport", "gather", "page", "read_exported", "write"]
