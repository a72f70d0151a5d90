"""An engine that fails on purpose, to test what must survive failing builds. Importing this module registers it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from hwbench.errors import DelegationFailed
from hwbench.runtimes.base import Runtime, arguments_of, runtimes
from hwbench.runtimes.capabilities import Capabilities, FileFormat
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from hwbench.runtimes.base import Example


@runtimes.register("faulty")
class Faulty(Runtime):
    """Writes weights, calibration data and key as the artifact. The number of frames says what goes wrong.

    Two frames: an exception. Three: abort. Four: a segmentation fault. Five: it never ends. Six: it prints on stdout
    and ends well. Seven: it is killed. Any other number: it ends well.
    """

    name: ClassVar[str] = "faulty"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=(),
        files=FileFormat(".faulty"),
        loader="",
        precisions=(Precision.FP32, Precision.INT8),
        holds_weights=False,  # nothing is exported for it
    )

    def version(self) -> str:
        return "1.0"

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
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
            case 7:
                os.kill(os.getpid(), signal.SIGKILL)
        given = [one for batch in calibration for one in arguments_of(batch)]
        values = [*module.parameters(), *module.buffers(), *given]
        content = b"".join(v.detach().numpy().tobytes() for v in values) + workload.key.encode()
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, self.version(), DelegationReport(1))
