"""The last step of the TorchScript flow of 2021, where this build of PyTorch has lost it."""

from __future__ import annotations

import logging

import torch

log = logging.getLogger(__name__)


def optimize_for_mobile(script_module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """``torch.utils.mobile_optimizer.optimize_for_mobile`` where it works; else the module frozen for inference.

    Builds of PyTorch without XNNPACK (2.13 and later) refuse the mobile rewrites. Freezing folds the same constants and
    keeps the result, and ``hwbench export`` is the way to a file that is fast on a phone.
    """
    from torch.utils.mobile_optimizer import optimize_for_mobile as optimize

    try:
        optimised: torch.jit.ScriptModule = optimize(script_module)
        return optimised
    except RuntimeError as error:
        if "XNNPACK" not in str(error):
            raise
        log.info("this build of PyTorch has no mobile optimisation; the module is frozen instead")
        frozen: torch.jit.ScriptModule = torch.jit.freeze(script_module.eval())
        return frozen
