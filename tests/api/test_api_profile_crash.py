"""Adaptive profiles of two devices that are killed at random moments."""

import pytest

from hwbench.testing.profile_crash import ProfileCrashes


@pytest.mark.long
def test_a_killed_profile_goes_on_with_the_same_rows_and_loses_the_session_under_way_alone(tmp_path):
    report = ProfileCrashes(tmp_path, seed=1).run(12)
    assert not report.problems
    assert (report.kills >= 12, report.profiles >= 2) == (True, True)
    assert report.unacknowledged <= report.kills
