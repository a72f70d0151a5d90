"""Which processors compute in fp16, by what they say of themselves."""

from dataclasses import replace

import pytest

from hwbench.devices.arithmetic import emulates_half, lacking, require_arithmetic
from hwbench.devices.probe import Cpu, Probe
from hwbench.errors import InvalidValue
from hwbench.specs import Precision

A53 = Probe(
    model="board",
    arch="aarch64",
    kernel="Linux 6.1",
    cpus=(Cpu(0, "Cortex-A53", "0"),),
    allowed=(0,),
    features=("asimd", "neon"),
    memory_bytes=0,
    governor="unknown",
    virtualised=False,
)
A76 = replace(A53, features=("asimd", "asimddp", "asimdhp", "fphp"))
ZEN = replace(A53, arch="x86_64", features=("avx2", "f16c", "fma"))


def test_a_processor_without_half_precision_is_refused_with_the_reason_and_what_to_choose():
    with pytest.raises(InvalidValue) as caught:
        require_arithmetic(A53, "old-pi", [Precision.FP32, Precision.FP16])
    text = str(caught.value)
    assert "'old-pi' has no fp16 arithmetic (Cortex-A53 without asimdhp)" in text
    assert "--precision int8 or fp32" in text
    assert len(text.splitlines()) == 1


def test_what_has_it_and_what_needs_it_not_pass():
    require_arithmetic(A76, "pi5", list(Precision))
    require_arithmetic(A53, "old-pi", [Precision.FP32, Precision.INT8])
    require_arithmetic(ZEN, "local", [Precision.FP16])
    with pytest.raises(InvalidValue, match="without f16c and avx2"):
        require_arithmetic(replace(ZEN, features=("fma",)), "local", [Precision.FP16])


def test_x86_emulates_it_unless_it_says_otherwise():
    assert emulates_half(ZEN)
    assert not emulates_half(replace(ZEN, features=(*ZEN.features, "avx512_fp16")))
    assert not emulates_half(A76)
    assert lacking(A76) == ()
