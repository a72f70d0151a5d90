"""From a trained model to a file for a device."""

from hwbench.deploy.convert import ConversionReport, convert_to_deployable_form
from hwbench.deploy.mobile_optimizer import optimize_for_mobile
from hwbench.deploy.transmute import TransmuteReport, transmute_model

__all__ = [
    "ConversionReport",
    "TransmuteReport",
    "convert_to_deployable_form",
    "optimize_for_mobile",
    "transmute_model",
]
