"""``make check-dependencies``: the licences of everything that is installed, and what is known against its versions.

Licences come from the metadata of the installed distributions and are held against ``licences.toml``. Known
vulnerabilities come from pip-audit, which is installed into a folder of its own for this; those that it cannot tell of
are asked of the JSON interface of the package index that pip is set up for, which may know the newest version alone.

Exit status: 0 nothing found; 1 a licence that is not on the list, or a known vulnerability; 2 nothing was looked at: a
name of --only is not installed, or nothing is; 3 no finding, and for some distributions nobody could say whether a
vulnerability is known.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TextIO

LIST = Path(__file__).with_name("licences.toml")
FOUND, UNKNOWN = 1, 3
# Seconds for one answer of an index, and for pip-audit with its installation.
_ANSWER_S, _AUDIT_S = 20, 600


@dataclass(frozen=True, order=True)
class Installed:
    """A distribution: its normalised name, its version, and its licence as the metadata has it."""

    name: str
    version: str
    licence: str

    @classmethod
    def of(cls, distribution: Distribution) -> Installed:
        """What the metadata say: an SPDX expression, else the classifiers, else the first line of the old field."""
        metadata = distribution.metadata
        stated = metadata.get("License-Expression") or ""
        if not stated:
            kinds = [
                text.split(" :: ")[-1] for text in metadata.get_all("Classifier", []) if text.startswith("License ::")
            ]
            lines = (metadata.get("License") or "").strip().splitlines()
            stated = " AND ".join(sorted(kinds)) or (lines[0].strip() if lines else "")
        return cls(normalised(metadata["Name"]), distribution.version, stated)


def normalised(name: str) -> str:
    """A distribution's name as an index compares it: ``ruamel.yaml`` and ``Ruamel_YAML`` are ``ruamel-yaml``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(paths: list[str] | None = None) -> list[Installed]:
    """Every distribution of this interpreter, or of some folders."""
    return sorted({Installed.of(each) for each in distributions(**({"path": paths} if paths else {}))})


@dataclass(frozen=True)
class Licences:
    """The list: licences that do, other names of them, and packages with a reason of their own."""

    allowed: frozenset[str]
    names: Mapping[str, str]
    packages: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, path: Path = LIST) -> Licences:
        """Reads ``licences.toml``."""
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(frozenset(values["allowed"]), values["names"], values["packages"])

    def objection(self, package: Installed) -> str | None:
        """Why the licence of a distribution does not do, or None."""
        entry = next((self.packages[name] for name in self.packages if fnmatch.fnmatch(package.name, name)), None)
        stated = self.names.get(package.licence, package.licence)
        if entry is not None:
            expected = entry["licence"]
            same = expected in ("*", stated)
            return None if same else f"says {stated or 'nothing'!r}, its entry in {LIST.name} {expected!r}"
        if self._does(stated):
            return None
        return f"{stated or 'no licence'!r} is not on the list; read it, and add it or the package to {LIST.name}"

    def _does(self, expression: str) -> bool:
        """Whether a licence is allowed: of alternatives any, of licences that hold together all."""
        for word, enough in (("OR", any), ("AND", all)):  # AND binds tighter
            parts = _parts(expression, word)
            if len(parts) > 1:
                return enough(map(self._does, parts))
        licence = expression.strip()
        if licence.startswith("(") and licence.endswith(")"):
            return self._does(licence[1:-1])
        return self.names.get(licence, licence) in self.allowed


def _parts(expression: str, word: str) -> list[str]:
    """An SPDX expression, split at an operator where that stands outside of parentheses."""
    parts: list[str] = []
    inside = False
    for piece in expression.split(f" {word} "):
        if inside:
            parts[-1] += f" {word} {piece}"
        else:
            parts.append(piece)
        inside = parts[-1].count("(") != parts[-1].count(")")
    return parts


@dataclass
class Advisories:
    """Known vulnerabilities: ``name version`` -> identifiers, those nobody could tell of, and who was asked."""

    source: str
    known: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def audited(packages: list[Installed]) -> Advisories | None:
    """What pip-audit says; None where it cannot be installed, or its service does not answer."""
    with tempfile.TemporaryDirectory(prefix="dependencies-") as folder:
        tool, listed = Path(folder, "tool"), Path(folder, "requirements.txt")
        listed.write_text("".join(f"{each.name}=={_public(each.version)}\n" for each in packages))
        pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        words = ["-r", str(listed), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
        audit = [sys.executable, "-P", "-m", "pip_audit", *words]
        try:
            subprocess.run(
                [*pip, "install", "-q", "--target", str(tool), "pip-audit"],
                check=True,
                timeout=_AUDIT_S,
                capture_output=True,
            )
            environment = {**os.environ, "PYTHONPATH": str(tool)}
            done = subprocess.run(audit, capture_output=True, text=True, env=environment, timeout=_AUDIT_S, check=False)
            rows = json.loads(done.stdout)["dependencies"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError):
            return None
    result, told = Advisories("pip-audit"), set[str]()
    for row in rows:
        if "skip_reason" in row:
            continue
        told.add(row["name"])
        if row["vulns"]:
            result.known[f"{row['name']} {row['version']}"] = [each["id"] for each in row["vulns"]]
    result.unknown = [f"{each.name} {each.version}" for each in packages if each.name not in told]
    return result


def looked_up(packages: Iterable[Installed], index: str) -> Advisories:
    """What the JSON interface of an index says, one distribution after the other; it ends with the first silence."""
    result, silent = Advisories(f"the JSON interface of {index}"), False
    for each in packages:
        one = f"{each.name} {each.version}"
        try:
            found = None if silent else _vulnerabilities(each, index)
        except OSError:
            found, silent = None, True
        if found is None:
            result.unknown.append(one)
        elif found:
            result.known[one] = found
    return result


def _vulnerabilities(package: Installed, index: str) -> list[str] | None:
    """Identifiers of what is known against a version; None where the index does not say."""
    version = _public(package.version)
    for page in (f"{package.name}/{version}/json", f"{package.name}/json"):
        try:
            with urllib.request.urlopen(f"{index}/{page}", timeout=_ANSWER_S) as answer:
                values = json.load(answer)
        except urllib.error.HTTPError:
            continue
        except ValueError:
            return None
        # The page without a version is about the newest.
        if values.get("info", {}).get("version") == version and "vulnerabilities" in values:
            return [each["id"] for each in values["vulnerabilities"] if not each.get("withdrawn")]
    return None


def _public(version: str) -> str:
    """A version without the local part, which no index knows."""
    return version.partition("+")[0]


def pip_index() -> str:
    """Where pip's index has its JSON interface: beside the list of packages that it is set up for."""
    from pip._internal.models.index import PyPI

    done = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    simple = os.environ.get("PIP_INDEX_URL") or done.stdout.strip() or PyPI.simple_url
    return re.sub(r"/simple/?$", "/pypi", simple)


def report(
    packages: list[Installed], licences: Licences, advisories: Advisories | None, *, out: TextIO | None = None
) -> Iterator[int]:
    """Prints the list and what is found; gives an exit status for each finding."""
    for each in packages:
        objection = licences.objection(each)
        print(f"{each.name} {each.version}: {each.licence or '-'}", file=out)
        if objection is not None:
            print(f"  LICENCE {each.name}: {objection}", file=out)
            yield FOUND
    if advisories is None:
        return
    for one, identifiers in advisories.known.items():
        print(f"  VULNERABLE {one}: {', '.join(identifiers)} ({advisories.source})", file=out)
        yield FOUND
    if advisories.unknown:
        count, some = len(advisories.unknown), ", ".join(advisories.unknown[:5])
        print(f"  UNKNOWN: {advisories.source} does not tell of {count} of {len(packages)}: {some} ...", file=out)
        yield UNKNOWN


def advised(packages: list[Installed], index: str | None = None) -> Advisories:
    """What pip-audit says, and an index of those that it does not know; of all, where the index is named."""
    first = audited(packages) if index is None else None
    if first is not None and not first.unknown:
        return first
    rest = [each for each in packages if first is None or f"{each.name} {each.version}" in first.unknown]
    second = looked_up(rest, index or pip_index())
    if first is None:
        return second
    return Advisories(f"pip-audit, or {second.source},", {**first.known, **second.known}, second.unknown)


def main(words: list[str] | None = None) -> int:
    """Checks all; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="look at these distributions")
    parser.add_argument("--path", nargs="+", metavar="FOLDER", help="look at what is installed in these folders")
    parser.add_argument("--index", help="ask this JSON interface, and not pip-audit")
    parser.add_argument("--licences-only", action="store_true", help="ask nobody about vulnerabilities")
    asked = parser.parse_args(words)
    packages, only = installed(asked.path), {normalised(name) for name in asked.only or ()}
    place = f" in {', '.join(asked.path)}" if asked.path else ""
    if not packages:
        parser.error(f"nothing is installed{place}")
    if missing := sorted(only - {each.name for each in packages}):
        parser.error(f"--only: not installed{place}: {', '.join(missing)}")
    packages = [each for each in packages if not only or each.name in only]
    # Ourselves are on no index.
    others = [each for each in packages if each.name != "hwbench"]
    advisories = None
    if not asked.licences_only:
        advisories = advised(others, asked.index)
    return min((status for status in report(packages, Licences.read(), advisories)), default=0)


if __name__ == "__main__":
    sys.exit(main())
