"""Print the lowest declared version of each dependency, as constraints for pip.

pyproject.toml is the only place that names minimum versions. The arguments name the extras whose
dependencies are printed as well: ``python .ci/lowest_versions.py cli plot``.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w, -]+)\])?(>=(?P<lowest>[\d.]+))?")


def lowest_versions(requirements: list[str]) -> dict[str, str]:
    """Map each required package to its lowest version; our own extras are followed."""
    found: dict[str, str] = {}
    for requirement in requirements:
        parts = REQUIREMENT.fullmatch(requirement)
        if parts is not None and parts["name"] == PROJECT["name"]:
            found |= lowest_versions(extras_of(parts["extras"].split(",")))
        elif parts is None or parts["lowest"] is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} must read name>=version.")
        elif found.setdefault(parts["name"], parts["lowest"]) != parts["lowest"]:
            raise SystemExit(f"pyproject.toml: {parts['name']} has two lowest versions.")
    return found


def extras_of(names: list[str]) -> list[str]:
    """Return the requirements of the extras ``names``."""
    return [each for name in names for each in PROJECT["optional-dependencies"][name]]


if __name__ == "__main__":
    for name, lowest in sorted(
        lowest_versions(PROJECT["dependencies"] + extras_of(sys.argv[1:])).items()
    ):
        print(f"{name}=={lowest}")
