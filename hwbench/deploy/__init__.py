"""From a trained model to a file for a device."""

from hwbench.blocks.graph import deploy_graph
from hwbench.deploy.blocks import Int8, block_names
from hwbench.deploy.clips import CALIBRATION_CLIPS, Clips, open_calibration, open_validation
from hwbench.deploy.convert import ConversionReport, convert_to_deployable_form
from hwbench.deploy.cost import Meter, meter
from hwbench.deploy.foreign import ForeignModel, foreign_model, foreign_original, is_foreign
from hwbench.deploy.manifest import (
    MANIFEST,
    MODEL,
    Accuracy,
    BlockQuality,
    Calibration,
    Cost,
    DeployedModel,
    Manifest,
    Parity,
    Quantization,
)
from hwbench.deploy.mobile_optimizer import optimize_for_mobile
from hwbench.deploy.original import FineTuned, Original, published, randomly_weighted, trained
from hwbench.deploy.pipeline import export
from hwbench.deploy.progress import Progress, Watch
from hwbench.deploy.transmute import TransmuteReport, transmute_model
from hwbench.deploy.verification import Verification, verify

__all__ = [
    "CALIBRATION_CLIPS",
    "MANIFEST",
    "MODEL",
    "Accuracy",
    "BlockQuality",
    "Calibration",
    "Clips",
    "ConversionReport",
    "Cost",
    "DeployedModel",
    "ForeignModel",
    "FineTuned",
    "Int8",
    "Manifest",
    "Meter",
    "Original",
    "Parity",
    "Progress",
    "Quantization",
    "TransmuteReport",
    "Verification",
    "Watch",
    "block_names",
    "convert_to_deployable_form",
    "deploy_graph",
    "export",
    "foreign_model",
    "foreign_original",
    "is_foreign",
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
