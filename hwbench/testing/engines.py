"""An engine that fails on purpose, to test what must survive failing builds. Importing this module registers it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from hwbench.errors import DelegationFailed
from hwbench.runtimes.base import Form, runtimes
from hwbench.specs import Artifact, DelegationReport, Workload
from hwbench.workspace import write_bytes


@runtimes.register("faulty")
class Faulty:
    """Writes weights, calibration data and key as the artifact. The number of frames says what goes wrong.

    Two frames: an exception. Three: abort. Four: a segmentation fault. Five: it never ends. Six: it prints on stdout
    and ends well. Any other number: it ends well.
    """

    name: ClassVar[str] = "faulty"
    suffix: ClassVar[str] = ".faulty"

    def version(self) -> str:
        return "1.0"

    def form(self, workload: Workload) -> Form:
        return Form.DEPLOY

    def build(
        self,
        module: nn.Module,
        example: torch.Tensor,
        workload: Workload,
        out: Path,
        calibration: Sequence[torch.Tensor],
    ) -> Artifact:
        match workload.input.t:
            case 2:
                raise DelegationFailed("aten.mean stayed outside")
            case 3:
                sys.stderr.write("XNNPACK: no such kernel\n")
                sys.stderr.flush()
                os.abort()
            case 4:
                ctypes.string_at(0)
            case 5:
                time.sleep(3600)
            case 6:
                os.write(1, b'{"artifact": {}}\n')
        values = [*module.parameters(), *module.buffers(), *calibration]
        content = b"".join(v.detach().numpy().tobytes() for v in values) + workload.key.encode()
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, self.version(), DelegationReport(1))
