"""What is asked of a file in each precision."""

import pytest

from hwbench.deploy.manifest import ParityRecord
from hwbench.deploy.parity import check_parity
from hwbench.errors import ParityFailed
from hwbench.specs import Precision


def parity(sqnr_db: float) -> ParityRecord:
    return ParityRecord("noise", 8, 1e-6, 1e-15, 0.1, 0.01, 0.1, sqnr_db, 1.0)


@pytest.mark.parametrize(
    ("precision", "trained", "least"),
    [
        ("fp16", True, 40),
        ("bf16", True, 30),
        ("int8", True, 10),
        ("fp16", False, 3),  # X3D-XS is at 32: random layers amplify what rounding leaves of each
        ("bf16", False, 3),
        ("int8", False, 3),
    ],
)
def test_the_least_sqnr_of_a_precision(precision: str, trained: bool, least: float) -> None:
    check_parity(parity(least), Precision(precision), trained=trained)
    with pytest.raises(ParityFailed, match=f"SQNR of {least - 0.1:.1f} dB .* at least {least} dB"):
        check_parity(parity(least - 0.1), Precision(precision), trained=trained)
