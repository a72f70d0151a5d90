"""Temperatures of thermal zones: the runners in C++ and in Python and the state of a device read the same."""

import subprocess

import pytest

from hwbench.devices import state
from hwbench.runtimes.machine import hottest
from hwbench.runtimes.native.build import SOURCES, find_compiler

MAIN = """
#include <cstdio>
#include "machine.h"
int main() { std::printf("%lld\\n", static_cast<long long>(hwbench::temperature_mc())); }
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """The C++ runner's thermometer as a program, which reads the zones of the folder in which it is started."""
    folder = tmp_path_factory.mktemp("thermometer")
    for source in SOURCES.glob("*.h"):
        (folder / source.name).write_text(source.read_text().replace("/sys/class/thermal/", ""))
    (folder / "main.cpp").write_text(MAIN)
    program = folder / "thermometer"
    subprocess.run([*find_compiler(), "-std=c++20", folder / "main.cpp", "-o", program], check=True)
    return program


@pytest.mark.parametrize(
    ("zones", "celsius"),
    [
        ([("soc", "87"), ("cpu-0-0-usr", "41000")], 41.0),
        ([("soc", "100"), ("battery", "31000")], 31.0),
        ([("soc", "41000"), ("cpu-0-0-usr", "40000")], 41.0),
        ([("cpu-0-0-usr", "41000"), ("socd", "64")], 41.0),
        ([("socd", "64"), ("battery", "31000")], 31.0),
        ([("socd", "41000"), ("cpu-0-0-usr", "40000")], 41.0),
        ([("soc_thermal", "97"), ("cpu-0-0-usr", "40000")], 97.0),
        ([("cpu", "820")], 82.0),
        ([("cpu", "150")], 15.0),
        ([("cpu", "149")], 149.0),
        ([("cpu", "1499")], 149.9),
        ([("cpu", "1500")], 1.5),
        ([("cpu", "150000"), ("cpu", "-40000")], None),
        ([("soc", "87")], None),
    ],
)
def test_zones_are_read_alike(reader, tmp_path, zones, celsius):
    for number, (kind, reading) in enumerate(zones):
        folder = tmp_path / f"thermal_zone{number}"
        folder.mkdir()
        (folder / "type").write_text(f"{kind}\n")
        (folder / "temp").write_text(f"{reading}\n")
    said = subprocess.run([reader], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = "".join(f"{number}:{reading}:{kind}\n" for number, (kind, reading) in enumerate(zones))
    of_device = state.parse(f"== zones\n{lines}").hottest
    assert int(said.stdout) == hottest(zones) == round(1000 * (celsius or 0))
    assert (of_device.celsius if of_device else None) == celsius
