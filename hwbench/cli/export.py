"""``hwbench export``: from a checkpoint, or a network by name, to a checked file and its manifest."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hwbench.api.export import ExportRequest, export
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.errors import ParityFailed
from hwbench.specs import Precision

if TYPE_CHECKING:
    from hwbench.deploy import QuantizationRecord


def _run(request: ExportRequest, as_json: bool) -> None:
    try:
        with listening() as listener:
            result = export(request, listener)
    except ParityFailed as error:
        if not as_json:
            _print_blocks(error.quantization)
        raise
    if not as_json:
        _print_blocks(result.model.manifest.quantization)
    emit(result.to_json(), as_json=as_json)
    say(f"next: hwbench bench {shlex.quote(str(result.model.path))} --device local")


def _print_blocks(how: QuantizationRecord | None) -> None:
    if how is not None and how.blocks:
        stays = {b.name: "fp32" for b in how.blocks if how.precision_of(b.name) is Precision.FP32}
        rows = [(b.name, f"{b.sqnr_db:.1f}", f"{b.alone_db:.1f}", stays.get(b.name, "")) for b in how.blocks]
        print_table(("block", "output, dB", "logits, it alone in int8, dB", ""), rows)


add_command(app, "export", ExportRequest, _run)
