"""From a trained model to a file for a device."""

from hwbench.deploy.clips import CALIBRATION_CLIPS, Clips, open_calibration, open_validation
from hwbench.deploy.convert import ConversionReport, convert_to_deployable_form
from hwbench.deploy.foreign import ForeignModel, foreign_model, foreign_original, is_foreign
from hwbench.deploy.graph import deploy_graph
from hwbench.deploy.manifest import MANIFEST, MODEL, Accuracy, Calibration, DeployedModel, Manifest, Parity
from hwbench.deploy.mobile_optimizer import optimize_for_mobile
from hwbench.deploy.original import Original, published, randomly_weighted, trained
from hwbench.deploy.pipeline import Progress, Watch, export
from hwbench.deploy.transmute import TransmuteReport, transmute_model

__all__ = [
    "CALIBRATION_CLIPS",
    "MANIFEST",
    "MODEL",
    "Accuracy",
    "Calibration",
    "Clips",
    "ConversionReport",
    "DeployedModel",
    "ForeignModel",
    "Manifest",
    "Original",
    "Parity",
    "Progress",
    "TransmuteReport",
    "Watch",
    "convert_to_deployable_form",
    "deploy_graph",
    "export",
    "foreign_model",
    "foreign_original",
    "is_foreign",
    "open_calibration",
    "open_validation",
    "optimize_for_mobile",
    "published",
    "randomly_weighted",
    "trained",
    "transmute_model",
]
