"""How good the predictions are: accuracy, density and intervals on real tables, against others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..table import Table
from . import large
from .methods import ABLATION, OURS, ours, peers
from .report import report
from .tables import FLIGHT_TABLES, N_SPLITS, find
from .trials import run_all

T = TypeVar("T")
LARGE = "large"


class UnknownName(ValueError):  # noqa: N818 - a wish that cannot be met, not a defect
    """A table or method that there is not."""


def run(
    quick: bool,
    data: Path | None,
    tables: Sequence[str] = (),
    methods: Sequence[str] = (),
    cache: Path | None = None,
    environments: Path | None = None,
    n_splits: int = N_SPLITS,
    most_test_rows: int | None = None,
) -> Iterator[Table]:
    """Yield the tables of results.

    Parameters
    ----------
    tables, methods : names, or of groups of them (default: all)
        Groups of tables are "regression" and "flights"; "large" is a table of its own, 700,000
        flights, for ours alone. Groups of methods are "peers", "ours" and "ablation".
    cache : folder where each result is kept, so that it need not be found again
    environments : folder for peers that need an environment of their own (default: without them)
    n_splits : number of random splits of each table
    most_test_rows : predict only so many rows of each split
    """
    if LARGE in tables or not (tables or quick):
        yield from large.run(data)
        if list(tables) == [LARGE]:
            return
        tables = [name for name in tables if name != LARGE]
    found = find(data, quick)
    groups = {
        "flights": [name for name in FLIGHT_TABLES if name in found],
        "regression": [name for name in found if name not in FLIGHT_TABLES],
    }
    found = chosen("table", found, tables, groups)
    by_group = {
        "ours": ours(quick, OURS),
        "peers": peers(quick, environments),
        "ablation": ours(quick, ABLATION),
    }
    known = {method.name: method for group in by_group.values() for method in group}
    groups = {name: [method.name for method in group] for name, group in by_group.items()}
    taking_part = list(chosen("method", known, methods, groups).values())
    n_splits = 1 if quick else n_splits
    results = run_all(found, taking_part, n_splits, quick, cache, most_test_rows)
    # The first of ours is the one in the tables; all others of ours are in the ablation.
    head = by_group["ours"][0] if by_group["ours"][0] in taking_part else None
    rivals = [method for method in taking_part if method in by_group["peers"]]
    variants = [method for method in taking_part if method not in rivals and method is not head]
    yield from report(results, head.name if head else None, rivals, variants)


def chosen(
    kind: str, known: dict[str, T], names: Sequence[str], groups: dict[str, list[str]]
) -> dict[str, T]:
    """Return what is named, by itself or by its group, in the order of the known ones."""
    wanted = {one for name in names for one in groups.get(name, [name])}
    unknown = wanted - known.keys()
    if unknown:
        choices = ", ".join([*groups, *known])
        raise UnknownName(f"unknown {kind} {min(unknown)!r}: choose from {choices}")
    return {name: one for name, one in known.items() if not names or name in wanted}
