"""A manifest as ``hwbench export`` leaves it, beside a file that was not exported here."""

from dataclasses import replace
from pathlib import Path

from hwbench.deploy.manifest import Manifest
from hwbench.measure.cache import file_sha256
from hwbench.runtimes import of_file
from hwbench.specs import Precision

GOLDEN = Path(__file__).resolve().parent / "golden" / "afbb81b" / "manifest-fp32.json"


def write_manifest(model: Path, precision: str = "fp32") -> Path:
    """Writes ``manifest.json`` beside a model: its digest, size, engine and precision; the other values are golden."""
    manifest = replace(
        Manifest.read(GOLDEN),
        sha256=file_sha256(model),
        bytes=model.stat().st_size,
        precision=Precision(precision),
        runtime=of_file(model),
    )
    manifest.write(path := model.with_name("manifest.json"))
    return path
