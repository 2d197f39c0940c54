"""Fit every method of Table 1 to every split, and set the paper's figures beside ours."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.table import Table
from reproduction import flights
from reproduction.flights import FORESTS, Split
from reproduction.report import Report, progress

CONFIGURATION = tomllib.loads((Path(__file__).parent / "configuration.toml").read_text())
SCORES = ("rmse", "nlpd", "crps")
METHODS = [*CONFIGURATION["processes"], "RF", "ERT", "MF", "MF, empirical"]

Runs = dict[str, dict[str, list[dict[str, Any]]]]


def run(quick: bool, data: Path | None = None) -> Report:
    """Return the report; ``data`` is the folder of the flights."""
    flights.compile_kernels()
    return build(
        {split.name: measure(split, quick, data) for split in flights.splits(quick)}, quick
    )


def build(measured: Runs, quick: bool) -> Report:
    """Return the report of what was measured."""
    report = Report(
        "Table 1: flight delays, forests and Gaussian processes",
        CONFIGURATION["about"],
        notes=CONFIGURATION["differences"],
        summary=side_by_side(measured, quick),
        data={"measured": measured},
        figure=draw(measured),
    )
    for split in flights.splits(quick):
        report.tables.append(table(split, measured[split.name]))
        check(report, split.name, measured[split.name], quick)
    if not quick:
        check_speed(report, measured["693K / 34.7K"])
        for item in CONFIGURATION.get("expected", []):
            for score in ("rmse", "nlpd"):
                found = mean(measured[item["split"]][item["method"]], score)
                what = f"{score.upper()} of {item['method']}, {item['split']}:"
                report.expect(what, found, *item[score])
    return report


def measure(split: Split, quick: bool, data: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of every method on one split."""
    runs: dict[str, list[dict[str, Any]]] = {}
    seeds = range(flights.n_runs(quick))
    for method in FORESTS:
        runs[method] = [
            flights.evaluate_forest(method, split, seeds[k], data)
            for k in progress(len(seeds), f"{split.name}: {method}")
        ]
    if find_spec("gpytorch") is None:
        print("The Gaussian processes are left out: pip install 'mondrian-forest[gp]'.")
        return runs
    from reproduction import gaussian_processes

    kinds = {
        "SVI-GP": gaussian_processes.SVIGP,
        "Dist-VGP": gaussian_processes.DistVGP,
        "rBCM": gaussian_processes.RBCM,
    }
    for method, item in CONFIGURATION["processes"].items():
        if quick or split.name in item["splits"]:
            process = kinds[method](0, **item["quick" if quick else "setting"])
            runs[method] = [flights.evaluate(process, split, 0, data)]
    return runs


def mean(runs: list[dict[str, Any]], score: str) -> float:
    """Return the mean of a score over runs."""
    return float(np.mean([run[score] for run in runs]))


def table(split: Split, runs: dict[str, list[dict[str, Any]]]) -> Table:
    """Return one split's table."""
    quoted = CONFIGURATION["paper"].get(split.paper, {})
    columns = ["method", "RMSE", "NLPD", "CRPS", "fit, s", "predict, s", "runs"]
    if quoted:
        columns += [f"RMSE, paper ({split.paper})", "NLPD, paper"]
    result = Table(f"{split.name} rows", columns)
    for method in METHODS:
        cells: list[Any]
        if method in runs:
            cells = [with_error([run[score] for run in runs[method]]) for score in SCORES]
            seconds = (mean(runs[method], part) for part in ("fit seconds", "predict seconds"))
            cells += [*(f"{value:.1f}" for value in seconds), len(runs[method])]
        elif method in quoted:
            cells = [""] * 6
        else:
            continue
        if quoted:
            figures = quoted.get(method, {})
            cells += [figures.get("rmse", ""), figures.get("nlpd", "")]
        result.add(method, *(str(cell) for cell in cells))
    return result


def draw(measured: Runs) -> Figure:
    """Draw RMSE and NLPD of every method on every split."""
    figure = Figure(figsize=(3 * len(measured), 5.2), layout="constrained")
    axes = figure.subplots(2, len(measured), squeeze=False)
    for column, (split, runs) in enumerate(measured.items()):
        names = [method for method in METHODS if method in runs]
        for ax, score in zip(axes[:, column], ("rmse", "nlpd"), strict=True):
            for place, method in enumerate(names):
                values = [run[score] for run in runs[method]]
                colour = "tab:orange" if method.startswith("MF") else "0.4"
                ax.plot(values, [place] * len(values), "o", color=colour, alpha=0.7)
            ax.set_yticks(range(len(names)), names)
            ax.invert_yaxis()
            ax.grid(axis="x", alpha=0.3)
            ax.set_xlabel(score.upper())
        axes[0, column].set_title(split)
    return figure


def side_by_side(measured: Runs, quick: bool) -> Table:
    """Return the paper's forests and ours on corresponding splits."""
    columns = ["rows, paper", "rows, ours", "method", "RMSE, paper", "RMSE, ours"]
    result = Table("Table 1", [*columns, "NLPD, paper", "NLPD, ours"])
    for split in flights.splits(quick):
        for method, quoted in CONFIGURATION["paper"].get(split.paper, {}).items():
            runs = measured[split.name].get(method)
            ours = {score: with_error([r[score] for r in runs]) for score in SCORES} if runs else {}
            result.add(
                split.paper, split.name, method, str(quoted.get("rmse", "")), ours.get("rmse", ""),
                str(quoted.get("nlpd", "")), ours.get("nlpd", ""),
            )  # fmt: skip
    return result


def with_error(values: list[float]) -> str:
    """Return the mean, and its standard error where there is more than one run."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}"


def check(report: Report, name: str, runs: dict[str, list[dict[str, Any]]], quick: bool) -> None:
    """Check what must hold on every split; a small one needs more room."""
    margin, room = (0.1, 0.25) if quick else (0.2, 0.12)
    score = {method: mean(runs[method], "nlpd") for method in FORESTS}
    for method in ("MF", "MF, empirical"):
        best = min(score["RF"], score["ERT"])
        report.check(
            f"{name}: {method} beats RF and ERT in NLPD by {margin:g} at least",
            score[method] + margin <= best,
            f"{score[method]:.2f} against {score['RF']:.2f} and {score['ERT']:.2f}",
        )
        ratio = mean(runs[method], "rmse") / mean(runs["RF"], "rmse")
        report.check(
            f"{name}: RMSE of {method} is within {room:.0%} of that of RF",
            ratio <= 1 + room,
            f"{ratio - 1:+.1%}",
        )


def check_speed(report: Report, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Check that Mondrian forests are fitted several times faster."""
    for other, times in (("ERT", 4), ("RF", 10)):
        ratio = mean(runs[other], "fit seconds") / mean(runs["MF"], "fit seconds")
        report.check(
            f"693K / 34.7K: MF is fitted at least {times} times faster than {other}",
            ratio >= times,
            f"{ratio:.1f} times",
        )
