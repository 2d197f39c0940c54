"""Compare the coverage of prediction intervals with the ideal, for every forest and split."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.table import Table
from mondrian_forest.metrics import LEVELS
from reproduction import flights
from reproduction.flights import FORESTS
from reproduction.report import Report, progress

CONFIGURATION = tomllib.loads((Path(__file__).parent / "configuration.toml").read_text())

Runs = dict[str, dict[str, list[dict[str, Any]]]]


def run(quick: bool, data: Path | None = None) -> Report:
    """Return the report; ``data`` is the folder of the flights."""
    flights.compile_kernels()
    return build(
        {
            split.name: {
                method: [
                    flights.evaluate_forest(method, split, seed, data)
                    for seed in progress(flights.n_runs(quick), f"{split.name}: {method}")
                ]
                for method in FORESTS
            }
            for split in flights.splits(quick)
        },
        quick,
    )


def build(measured: Runs, quick: bool) -> Report:
    """Return the report of what was measured."""
    columns = ["rows", "method", *(f"{level:.1f}" for level in LEVELS), "mean size"]
    gaussian = Table(
        "Gaussian intervals of mean and variance, as in the paper",
        columns,
        note="Observed minus ideal coverage, mean over runs; mean size is the mean of the absolute "
        'values. **Rows marked "paper" are quoted from it**; its splits are the larger ones that '
        "ours are scaled from.",
    )
    own = Table(
        "Intervals between quantiles of the mixture itself",
        columns,
        note="RF and ERT have no predictive distribution of their own.",
    )
    report = Report(
        "Table 2: calibration on flight delays",
        CONFIGURATION["about"],
        tables=[gaussian, own],
        data={"measured": measured},
        seconds=sum(
            run["fit seconds"] + run["predict seconds"]
            for methods in measured.values()
            for method in FORESTS
            for run in methods[method]
        ),
        notes=CONFIGURATION["differences"],
        figure=draw(measured, quick),
        summary=side_by_side(measured, quick),
    )
    for split in flights.splits(quick):
        runs = measured[split.name]
        coverage = {method: coverage_error(runs[method], "gaussian coverage") for method in FORESTS}
        for method, differences in coverage.items():
            _add(gaussian, split.name, method, differences)
        for method, quoted in CONFIGURATION["paper"].get(split.paper, {}).items():
            _add(gaussian, f"{split.paper}, paper", method, np.array(quoted))
        for method in ("MF", "MF, empirical"):
            _add(own, split.name, method, coverage_error(runs[method], "own coverage"))
            ours, theirs = (np.abs(coverage[name]).mean() for name in (method, "ERT"))
            report.check(
                f"{split.name}: {method} is better calibrated than ERT",
                ours < theirs,
                f"mean size {ours:.3f} against {theirs:.3f}",
            )
        for method, size in CONFIGURATION["expected"].get(split.name, {}).items():
            found = np.abs(coverage[method]).mean()
            what = f"Mean size of {method}, {split.name}:"
            report.expect(what, found, size, CONFIGURATION["tolerance"])
    return report


def draw(measured: Runs, quick: bool) -> Figure:
    """Draw observed minus ideal coverage; the paper's is dashed."""
    figure = Figure(figsize=(3.2 * len(measured), 3.2), layout="constrained")
    axes = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
    colours = dict(zip(FORESTS, ("tab:orange", "tab:red", "0.4", "0.65"), strict=True))
    for ax, split in zip(axes, flights.splits(quick), strict=True):
        ax.axhline(0.0, color="0.8")
        for method in FORESTS:
            differences = coverage_error(measured[split.name][method], "gaussian coverage")
            ax.plot(LEVELS, differences, color=colours[method], label=method)
        own = coverage_error(measured[split.name]["MF"], "own coverage")
        ax.plot(LEVELS, own, color=colours["MF"], linestyle=":", label="MF, own quantiles")
        for method, quoted in CONFIGURATION["paper"].get(split.paper, {}).items():
            ax.plot(LEVELS, quoted, color=colours[method], linestyle="--")
        ax.set(title=split.name, xlabel="level")
    axes[0].set_ylabel("observed minus ideal coverage")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def side_by_side(measured: Runs, quick: bool) -> Table:
    """Return how far off the paper's forests and ours are, over all levels."""
    result = Table(
        "Table 2",
        ["rows, paper", "rows, ours", "method", "paper", "ours"],
        note="The size of observed minus ideal coverage, mean over the levels 0.1 to 0.9.",
    )
    for split in flights.splits(quick):
        for method, quoted in CONFIGURATION["paper"].get(split.paper, {}).items():
            ours = coverage_error(measured[split.name][method], "gaussian coverage")
            sizes = (f"{np.abs(differences).mean():.3f}" for differences in (quoted, ours))
            result.add(split.paper, split.name, method, *sizes)
    return result


def coverage_error(runs: list[dict[str, Any]], kind: str) -> np.ndarray:
    """Return observed minus ideal coverage at each level, mean over runs."""
    return np.mean([run[kind] for run in runs], axis=0)


def _add(table: Table, rows: str, method: str, differences: np.ndarray) -> None:
    size = np.abs(differences).mean()
    table.add(rows, method, *(f"{value:+.2f}" for value in differences), f"{size:.3f}")
