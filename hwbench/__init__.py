"""hwbench: hardware-aware search and profiling of video models.

``hwbench.profile``, ``search``, ``train``, ``export``, ``bench``, ``validate``, ``verify``, ``report``, ``doctor``
and ``quickstart`` do what the commands of these names do, ``add_device``, ``list_devices`` and the like what
``hwbench devices`` does, ``check_data`` and the like what ``hwbench data`` does: each takes one frozen request and a
listener, and returns a value. Importing this package loads no torch; a function loads what it needs when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwbench.api import API
from hwbench.errors import HwbenchError

if TYPE_CHECKING:
    from hwbench.api.adaptive_profile import TableAccuracy
    from hwbench.api.bench import BenchResult, bench
    from hwbench.api.bench_engines import BenchEnginesResult, EngineFailure, EngineTime, bench_engines
    from hwbench.api.bench_request import BenchRequest
    from hwbench.api.dashboard import DashboardRequest, DashboardResult, dashboard
    from hwbench.api.data.bench import BenchDataRequest, BenchDataResult, bench_data
    from hwbench.api.data.check import CheckDataRequest, CheckDataResult, check_data
    from hwbench.api.data.listing import ListDataRequest, ListDataResult, ListedData, list_data
    from hwbench.api.data.prepare import PrepareDataRequest, PrepareDataResult, prepare_data
    from hwbench.api.data.show import ShowDataRequest, ShowDataResult, show_data
    from hwbench.api.devices.add import AddDeviceRequest, AddDeviceResult, add_device
    from hwbench.api.devices.check import CheckDeviceRequest, CheckDeviceResult, check_device
    from hwbench.api.devices.listing import (
        AttachedPhone,
        ListDevicesRequest,
        ListDevicesResult,
        ListedDevice,
        list_devices,
    )
    from hwbench.api.devices.prepare import PrepareDeviceRequest, PrepareDeviceResult, prepare_device
    from hwbench.api.devices.remove import RemoveDeviceRequest, RemoveDeviceResult, remove_device
    from hwbench.api.devices.show import DeviceAnswer, ShowDeviceRequest, ShowDeviceResult, show_device
    from hwbench.api.devices.steps import CheckStep
    from hwbench.api.devices.trust import TrustDeviceRequest, TrustDeviceResult, trust_device
    from hwbench.api.diff import DiffRequest, DiffResult, TableDiff, diff
    from hwbench.api.doctor import DoctorRequest, DoctorResult, InstallationFinding, doctor
    from hwbench.api.export import ExportRequest, ExportResult, export
    from hwbench.api.init import InitRequest, InitResult, init
    from hwbench.api.listener import Listener, StageProgress
    from hwbench.api.profile import DeviceProfile, ProfileResult, profile
    from hwbench.api.profile_request import ProfileRequest
    from hwbench.api.quickstart import QuickstartRequest, QuickstartResult, quickstart
    from hwbench.api.report import ReportRequest, ReportResult, report
    from hwbench.api.scoreboard import ScoreboardRequest, ScoreboardResult, scoreboard
    from hwbench.api.search import search
    from hwbench.api.search_request import SearchRequest
    from hwbench.api.table_verification import TableVerification
    from hwbench.api.test import TestRequest, TestResult, test
    from hwbench.api.train import TrainResult, train
    from hwbench.api.train_request import TrainRequest
    from hwbench.api.validate import ValidateRequest, ValidateResult, validate
    from hwbench.api.verify import VerifyRequest, VerifyResult, verify
    from hwbench.api.zoo import (
        GetWeightsRequest,
        GetWeightsResult,
        ListedCard,
        ListZooRequest,
        ListZooResult,
        get_weights,
        list_zoo,
    )
    from hwbench.latency.table import LatencyTable
    from hwbench.measure.store import MeasurementStore
    from hwbench.studies.search_result import SearchResult

__all__ = [
    "AddDeviceRequest",
    "AddDeviceResult",
    "AttachedPhone",
    "BenchDataRequest",
    "BenchDataResult",
    "BenchEnginesResult",
    "BenchRequest",
    "BenchResult",
    "CheckDataRequest",
    "CheckDataResult",
    "CheckDeviceRequest",
    "CheckDeviceResult",
    "CheckStep",
    "DashboardRequest",
    "DashboardResult",
    "DeviceAnswer",
    "DeviceProfile",
    "DiffRequest",
    "DiffResult",
    "DoctorRequest",
    "DoctorResult",
    "EngineFailure",
    "EngineTime",
    "ExportRequest",
    "ExportResult",
    "GetWeightsRequest",
    "GetWeightsResult",
    "HwbenchError",
    "InitRequest",
    "InitResult",
    "InstallationFinding",
    "LatencyTable",
    "ListDataRequest",
    "ListDataResult",
    "ListDevicesRequest",
    "ListDevicesResult",
    "ListZooRequest",
    "ListZooResult",
    "ListedCard",
    "ListedData",
    "ListedDevice",
    "Listener",
    "MeasurementStore",
    "PrepareDataRequest",
    "PrepareDataResult",
    "PrepareDeviceRequest",
    "PrepareDeviceResult",
    "ProfileRequest",
    "ProfileResult",
    "QuickstartRequest",
    "QuickstartResult",
    "RemoveDeviceRequest",
    "RemoveDeviceResult",
    "ReportRequest",
    "ReportResult",
    "ScoreboardRequest",
    "ScoreboardResult",
    "SearchRequest",
    "SearchResult",
    "ShowDataRequest",
    "ShowDataResult",
    "ShowDeviceRequest",
    "ShowDeviceResult",
    "StageProgress",
    "TableDiff",
    "TableVerification",
    "TableAccuracy",
    "TestRequest",
    "TestResult",
    "TrainRequest",
    "TrainResult",
    "TrustDeviceRequest",
    "TrustDeviceResult",
    "ValidateRequest",
    "ValidateResult",
    "VerifyRequest",
    "VerifyResult",
    "__version__",
    "add_device",
    "bench",
    "bench_engines",
    "bench_data",
    "check_data",
    "check_device",
    "dashboard",
    "diff",
    "doctor",
    "export",
    "get_weights",
    "init",
    "list_data",
    "list_devices",
    "list_zoo",
    "prepare_data",
    "prepare_device",
    "profile",
    "quickstart",
    "remove_device",
    "report",
    "scoreboard",
    "search",
    "show_data",
    "show_device",
    "test",
    "train",
    "trust_device",
    "validate",
    "verify",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in API:
        raise AttributeError(f"module 'hwbench' has no attribute {name!r}")
    import importlib
    import inspect

    value = getattr(importlib.import_module(API[name]), name)
    if inspect.isfunction(value):
        from hwbench.api.published import published

        value = published(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *API})
