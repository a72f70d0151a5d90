"""What the search of the quickstart begins from: the trained networks that came with its space."""

import pytest

from hwbench.api import quickstart as loop
from hwbench.errors import InvalidValue
from hwbench.testing.listeners import Keeper
from hwbench.workspace import TRAINED, Workspace


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "bench")


def asked(workspace, monkeypatch, refuse=False):
    """The requests of the search, and what was said."""
    requests, keeper = [], Keeper()

    def search(request, *_, **__):
        requests.append(request)
        if refuse and request.learn_from:
            raise InvalidValue("effort was another one")

    monkeypatch.setattr(loop, "search", search)
    loop._Finding(loop.QuickstartRequest(), keeper, workspace, None).search(2e-3)
    return requests, keeper.lines


def test_it_learns_from_what_came_with_the_space(workspace, monkeypatch):
    (request,), said = asked(workspace, monkeypatch)
    assert request.learn_from == ("trained:x3d-tiny",)
    assert request.plan.evaluator == "fitted"
    assert sum(" --learn-from trained:x3d-tiny" in line for line in said) == 1


def test_a_space_without_trained_networks_is_searched_as_always(workspace, monkeypatch):
    assert "x3d-mobile" not in workspace.names(TRAINED)
    monkeypatch.setattr(loop, "SPACE", "x3d-mobile")
    (request,), said = asked(workspace, monkeypatch)
    assert request.learn_from == ()
    assert request.plan.evaluator == "entropy"
    assert not any("--learn-from" in line for line in said)


def test_a_study_of_before_goes_on(workspace, monkeypatch):
    requests, said = asked(workspace, monkeypatch, refuse=True)
    assert [one.learn_from for one in requests] == [("trained:x3d-tiny",), ()]
    assert requests[0].study == requests[1].study
    assert any("goes on as it was begun, and learns from nothing: effort was another one" in line for line in said)
