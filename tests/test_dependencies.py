"""19-28: licences and known vulnerabilities of what is installed (``make check-dependencies``)."""

import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".ci" / "dependencies"))

import check  # noqa: E402  # a script, which lies outside of the package


class Index(BaseHTTPRequestHandler):
    """A package index: old-thing 1.0 has a vulnerability, new-thing is known in its newest version only."""

    pages: ClassVar = {
        "/pypi/old-thing/1.0/json": {"info": {"version": "1.0"}, "vulnerabilities": [{"id": "CVE-1"}]},
        "/pypi/new-thing/json": {"info": {"version": "2.0"}, "vulnerabilities": []},
        "/pypi/odd-thing/1.0/json": {"info": {"version": "1.0"}},
    }

    def do_GET(self) -> None:
        page = self.pages.get(self.path)
        self.send_response(200 if page else 404)
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/pypi"
        server.shutdown()
        thread.join()


def distribution(folder: Path, name: str, version: str, *lines: str) -> Path:
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(
        "\n".join(("Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines))
    )
    return folder


def said(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = check.main([*words])
    return status, capsys.readouterr().out


def test_19_28_what_is_installed_here_is_on_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said("--licences-only", capsys=capsys)
    assert status == 0, text
    assert "torch " in text
    assert "av " in text


def test_19_28_every_entry_of_the_list_has_a_reason() -> None:
    licences = check.Licences.read()
    assert all(entry["why"] for entry in licences.packages.values())
    assert all(known in licences.allowed or known == "MPL-2.0" for known in licences.names.values())
    assert not [name for name in licences.allowed if "GPL" in name]


@pytest.mark.parametrize(
    ("lines", "does"),
    [
        (["License-Expression: MIT"], True),
        (["License-Expression: GPL-3.0-only OR Apache-2.0"], True),
        (["License-Expression: MIT AND GPL-3.0-only"], False),
        (["License-Expression: GPL-3.0-only AND (MIT OR Apache-2.0)"], False),
        (["License-Expression: (MIT OR Apache-2.0) AND GPL-3.0-only"], False),
        (["License-Expression: MIT AND (GPL-3.0-only OR Apache-2.0)"], True),
        (["License-Expression: (MIT OR Apache-2.0) AND (GPL-3.0-only OR BSD-3-Clause)"], True),
        (["License-Expression: GPL-3.0-only AND MIT OR Apache-2.0"], True),
        (["License-Expression: GPL-3.0-only AND (MIT OR Apache-2.0) OR LGPL-2.1-only"], False),
        (["License-Expression: ((GPL-3.0-only OR (MIT AND (ISC OR LGPL-2.1-only))) AND Zlib)"], True),
        (["License-Expression: Apache-2.0 WITH LLVM-exception AND (MIT)"], True),
        (["License-Expression: (MIT"], False),
        (["License-Expression: MIT) AND (ISC"], False),
        (["Classifier: License :: OSI Approved :: ISC License (ISCL)", "Classifier: License :: Public Domain"], True),
        (["Classifier: License :: OSI Approved :: BSD License"], True),
        (["Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)"], False),
        (["License: MIT License"], True),
        (["License: of our own making"], False),
        ([], False),
    ],
)
def test_19_28_a_licence_off_the_list_fails(
    lines: list[str], does: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distribution(tmp_path, "some.Thing", "1.0", *lines)
    status, text = said("--path", str(tmp_path), "--licences-only", capsys=capsys)
    assert status == (0 if does else 1), text
    assert ("LICENCE some-thing" in text) != does


def test_19_28_a_package_that_changes_its_licence_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distribution(tmp_path, "paramiko", "9.0", "License-Expression: AGPL-3.0-only")
    status, text = said("--path", str(tmp_path), "--licences-only", capsys=capsys)
    assert status == 1
    assert "its entry in licences.toml 'LGPL-2.1'" in text


def test_19_28_a_known_vulnerability_fails_and_silence_is_told(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, version in (("new-thing", "2.0+local"), ("old-thing", "1.0"), ("odd-thing", "1.0")):
        distribution(tmp_path, name, version, "License-Expression: MIT")

    def asked(*names: str, at: str = index) -> tuple[int, str]:
        return said("--path", str(tmp_path), "--index", at, "--only", *names, capsys=capsys)

    assert asked("new-thing")[0] == 0
    status, text = asked("new-thing", "old-thing")
    assert (status, "VULNERABLE old-thing 1.0: CVE-1" in text) == (1, True)
    status, text = asked("new-thing", "odd-thing")
    assert (status, "does not tell of 1 of 2: odd-thing 1.0" in text) == (3, True)
    status, text = asked("new-thing", "old-thing", at="http://127.0.0.1:9/pypi")
    assert (status, "does not tell of 2 of 2" in text) == (3, True)


def test_a_name_may_be_written_in_any_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distribution(tmp_path, "some.Thing", "1.0", "License-Expression: GPL-3.0-only")
    distribution(tmp_path, "other", "1.0", "License-Expression: MIT")
    status, text = said("--path", str(tmp_path), "--licences-only", "--only", "Some_thing", capsys=capsys)
    assert (status, "LICENCE some-thing" in text, "other" in text) == (1, True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "other", "no.such", "thing"), r"--only: not installed in \S+: no-such, thing$"),
        (("--path", "NOWHERE"), "nothing is installed in NOWHERE$"),
        (("--path", "NOWHERE", "--only", "other"), "nothing is installed in NOWHERE$"),
    ],
)
def test_a_check_that_looks_at_nothing_fails(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distribution(tmp_path, "other", "1.0", "License-Expression: MIT")
    with pytest.raises(SystemExit) as end:
        check.main(["--licences-only", "--path", str(tmp_path), *words])
    assert end.value.code == 2
    assert re.search(message, capsys.readouterr().err.strip())


def test_19_28_findings_outweigh_what_is_unknown() -> None:
    advisories = check.Advisories("somebody", {"a 1": ["X"]}, ["b 2"])
    licences = check.Licences(frozenset({"MIT"}), {}, {})
    packages = [check.Installed("a", "1", "MIT"), check.Installed("b", "2", "MIT")]
    assert {*check.report(packages, licences, advisories, out=io.StringIO())} == {check.FOUND, check.UNKNOWN}


def test_19_28_the_documented_statuses_are_those_of_the_script() -> None:
    text = (ROOT / "docs" / "licences.md").read_text()
    assert f"| {check.FOUND} | " in text
    assert "| 2 | " in text  # argparse's
    assert f"| {check.UNKNOWN} | " in text
    assert "check-dependencies: setup" in (ROOT / "Makefile").read_text()
