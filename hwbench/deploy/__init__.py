"""From a trained model to a file for a device."""

from hwbench.blocks.graph import deploy_graph
from hwbench.deploy.blocks import Int8, block_names
from hwbench.deploy.clips import CALIBRATION_CLIPS, Clips, open_calibration, open_validation
from hwbench.deploy.convert import ConversionReport, convert_to_deployable_form
from hwbench.deploy.cost import Meter, meter
from hwbench.deploy.external import ForeignModel, external_model, foreign_original, is_external
from hwbench.deploy.file_names import MANIFEST, MODEL
from hwbench.deploy.manifest import DeployedModel, Manifest
from hwbench.deploy.manifest_records import (
    Accuracy,
    BlockQuality,
    CalibrationRecord,
    CostRecord,
    ParityRecord,
    QuantizationRecord,
)
from hwbench.deploy.mobile_optimizer import optimize_for_mobile
from hwbench.deploy.pipeline import export
from hwbench.deploy.progress import ExportProgress, Watch
from hwbench.deploy.source import ExportSource, FineTuned, published, randomly_weighted, trained
from hwbench.deploy.streams import Streaming
from hwbench.deploy.transmute import TransmuteReport, transmute_model
from hwbench.deploy.verification import Verification, verify

__all__ = [
    "CALIBRATION_CLIPS",
    "MANIFEST",
    "MODEL",
    "Accuracy",
    "BlockQuality",
    "CalibrationRecord",
    "Clips",
    "ConversionReport",
    "CostRecord",
    "DeployedModel",
    "ForeignModel",
    "FineTuned",
    "Int8",
    "Manifest",
    "Meter",
    "ExportSource",
    "ParityRecord",
    "ExportProgress",
    "QuantizationRecord",
    "Streaming",
    "TransmuteReport",
    "Verification",
    "Watch",
    "block_names",
    "convert_to_deployable_form",
    "deploy_graph",
    "export",
    "external_model",
    "foreign_original",
    "is_external",
    "meter",
    "open_calibration",
    "open_validation",
    "optimize_for_mobile",
    "published",
    "randomly_weighted",
    "trained",
    "transmute_model",
    "verify",
]
