"""Latency tables and what they predict. Loads no torch."""

from hwbench.latency.accuracy import PredictionAccuracy, left_out_errors
from hwbench.latency.arithmetic import Work, macs, operations
from hwbench.latency.boosted import BoostedRows
from hwbench.latency.boundary import BoundaryModel
from hwbench.latency.calibration import Calibration
from hwbench.latency.changes import RowChange, TableChanges, compare_tables, sample_rows, taken_otherwise
from hwbench.latency.filled import FilledTable
from hwbench.latency.interpolation import interpolated
from hwbench.latency.intervals import BETWEEN_RUNS, between_runs, with_honest_intervals
from hwbench.latency.optimal_rows import AOptimal
from hwbench.latency.own_networks import rows_of_space, with_own_networks
from hwbench.latency.plan import calibration_networks, context_chains
from hwbench.latency.predictor import AdditivePredictor, Position
from hwbench.latency.row_choice import ByUse, RandomChoice, RowChoice
from hwbench.latency.row_models import FilledRows
from hwbench.latency.table import (
    LatencyRow,
    LatencyTable,
    Role,
    SelfCheck,
    load_table,
    profile_command,
    table_path,
    validate_command,
)
from hwbench.latency.tables_frame import tables_frame
from hwbench.latency.transfer import DeviceRatio, transferred
from hwbench.latency.validation import Comparison, Validation, spearman
from hwbench.latency.variants import VariantChoice, fastest_variant, has_variants, variant_rows

__all__ = [
    "BETWEEN_RUNS",
    "PredictionAccuracy",
    "AOptimal",
    "AdditivePredictor",
    "BoostedRows",
    "BoundaryModel",
    "ByUse",
    "Calibration",
    "Comparison",
    "DeviceRatio",
    "FilledRows",
    "FilledTable",
    "LatencyRow",
    "LatencyTable",
    "Position",
    "Role",
    "RandomChoice",
    "RowChange",
    "RowChoice",
    "SelfCheck",
    "TableChanges",
    "Validation",
    "Work",
    "VariantChoice",
    "between_runs",
    "calibration_networks",
    "compare_tables",
    "context_chains",
    "fastest_variant",
    "has_variants",
    "interpolated",
    "left_out_errors",
    "load_table",
    "macs",
    "operations",
    "profile_command",
    "rows_of_space",
    "sample_rows",
    "spearman",
    "table_path",
    "tables_frame",
    "transferred",
    "taken_otherwise",
    "validate_command",
    "variant_rows",
    "with_own_networks",
    "with_honest_intervals",
]
