"""Fit the forests to messages of expectation propagation, and look at their uncertainty."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.table import Table
from mondrian_forest.datasets import load_ep_messages
from reproduction.methods import forest, moments, predict
from reproduction.report import Report, progress

CONFIGURATION = tomllib.loads((Path(__file__).parent / "configuration.toml").read_text())
METHODS = ["MF", "MF, empirical", "ERT", "RF"]
PLACES = {"training rows": "train", "red": "test_red", "blue": "test_blue"}
EDGE = 5.0
"""The paper: training data has been observed where -5 < x1 < 5."""


def run(quick: bool, data: Path | None = None) -> Report:  # noqa: ARG001
    """Return the report; the data ships with the package."""
    setting = CONFIGURATION | (CONFIGURATION["quick"] if quick else {})
    messages = {place: load_ep_messages(name) for place, name in PLACES.items()}
    curves: dict[str, Any] = {}
    measured: dict[str, dict[str, dict[str, float]]] = {}
    for method in METHODS:
        runs = []
        for k in progress(len(setting["seeds"]), method):
            fitted = forest(method, setting["trees"], setting["seeds"][k])
            fitted.fit(messages["training rows"].data, messages["training rows"].target)
            found = {place: moments(predict(fitted, rows.data)) for place, rows in messages.items()}
            curves.setdefault(method, found)
            runs.append({place: measure(messages[place], *found[place]) for place in found})
        measured[method] = {
            place: {name: float(np.mean([r[place][name] for r in runs])) for name in runs[0][place]}
            for place in PLACES
        }
    report = Report(
        "Figure 2: uncertainty on messages of expectation propagation",
        setting["about"],
        tables=[table(measured, len(setting["seeds"]))],
        notes=setting["differences"],
        data={"seeds": setting["seeds"], "measured": measured},
        figure=draw(messages, curves),
        summary=side_by_side(measured),
    )
    check(report, measured)
    if not quick:
        for item in setting["expected"]:
            found_std = measured[item["method"]][item["place"]]["std"]
            what = f"Mean std of {item['method']}, {item['place']}:"
            report.expect(what, found_std, item["std"], item["tolerance"])
    return report


def measure(messages: Any, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return figures that make the paper's words checkable."""
    order = np.argsort(messages.data[:, 0], kind="stable")
    outside = np.abs(messages.data[:, 0]) > EDGE
    error = mean - messages.target
    return {
        "std": std.mean(),
        "std outside": std[outside].mean(),
        "variation": np.abs(np.diff(std[order])).sum() / np.ptp(std),
        "rmse": np.sqrt(np.mean(error**2)),
        "error over std outside": np.sqrt(np.mean((error / std)[outside] ** 2)),
    }


def table(measured: dict[str, dict[str, dict[str, float]]], n_runs: int) -> Table:
    """Return the figures of all methods on all sets of rows."""
    result = Table(
        f"Uncertainty of each method, mean over {n_runs} runs",
        ["method", "rows", "mean std", "mean std where abs(x1) > 5",
         "total variation / range of std", "RMSE", "error / std where abs(x1) > 5"],
        note="Total variation: the sum of the steps of the standard deviation from row to row "
        "along x1, divided by its range. It is 1 for a curve that only rises, 2 for one that falls "
        "and rises once. Error / std: root mean square; above 1, the method is too sure of itself.",
    )  # fmt: skip
    for method, places in measured.items():
        for place, row in places.items():
            variation = "" if place == "training rows" else f"{row['variation']:.1f}"
            result.add(
                method, place, f"{row['std']:.3f}", f"{row['std outside']:.3f}", variation,
                f"{row['rmse']:.2f}", f"{row['error over std outside']:.2f}",
            )  # fmt: skip
    return result


def check(report: Report, measured: dict[str, dict[str, dict[str, float]]]) -> None:
    """Check what the paper says."""
    for method in ("MF", "MF, empirical"):
        training, red, blue = (measured[method][place]["std"] for place in PLACES)
        report.check(
            f"{method} is surer on the training rows than on the red ones, and there than on the "
            "blue ones",
            training < red < blue,
            f"std {training:.2f} < {red:.2f} < {blue:.2f}",
        )
    outside = {
        method: np.mean([measured[method][place]["std outside"] for place in ("red", "blue")])
        for method in METHODS
    }
    for other in ("MF", "MF, empirical", "ERT"):
        report.check(
            f"RF is surer of itself off the data than {other}, at least three times",
            3 * outside["RF"] < outside[other],
            f"std {outside['RF']:.2f} against {outside[other]:.2f}",
        )
    ratio = {m: measured[m]["red"]["error over std outside"] for m in ("RF", "MF, empirical", "MF")}
    report.check(
        "Off the data on the red set, RF is too sure of itself and MF is not",
        ratio["RF"] > 2 and ratio["MF"] < 1 and ratio["MF, empirical"] < 1.5,
        ", ".join(f"{method} {value:.1f}" for method, value in ratio.items()),
    )


def side_by_side(measured: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Return what the paper says of its picture, and our figures."""

    def figures(name: str, place: str, digits: int) -> str:
        return ", ".join(f"{m} {measured[m][place][name]:.{digits}f}" for m in METHODS)

    result = Table("Figure 2", ["in the paper", "here"])
    result.add(
        "off the data, RF is too sure of itself, compared to MF and ERT",
        f"mean std where abs(x1) > 5, red: {figures('std outside', 'red', 2)}; blue: "
        f"{figures('std outside', 'blue', 2)}",
    )
    result.add(
        "MF is less sure on the blue rows than on the red ones",
        f"mean std, red: {figures('std', 'red', 2)}; blue: {figures('std', 'blue', 2)}",
    )
    result.add(
        "MF's uncertainty rises smoothly, ERT's less so",
        f"total variation / range, red: {figures('variation', 'red', 1)}; blue: "
        f"{figures('variation', 'blue', 1)}",
    )
    result.add(
        "the errors are comparable",
        f"RMSE, red: {figures('rmse', 'red', 2)}; blue: {figures('rmse', 'blue', 2)}",
    )
    return result


def draw(messages: dict[str, Any], curves: dict[str, Any]) -> Figure:
    """Draw the scatter of the rows, and the uncertainty of each method along x1."""
    figure = Figure(figsize=(15, 3.4), layout="constrained")
    axes = figure.subplots(1, 1 + len(curves))
    for place, rows in messages.items():
        style = (
            {"color": "0.5", "s": 2}
            if place == "training rows"
            else {"color": f"tab:{place}", "s": 4}
        )
        axes[0].scatter(*rows.data.T, label=place, **style)
    axes[0].set(title="Training and test rows", xlabel="x1", ylabel="x2")
    axes[0].legend(loc="upper right", fontsize="x-small", markerscale=3)
    for ax, (method, found) in zip(axes[1:], curves.items(), strict=True):
        for place in ("red", "blue"):
            x = messages[place].data[:, 0]
            order = np.argsort(x, kind="stable")
            ax.plot(x[order], found[place][1][order], color=f"tab:{place}", linewidth=0.8)
        for edge in (-EDGE, EDGE):
            ax.axvline(edge, color="0.7", linewidth=0.8, linestyle=":")
        ax.set(title=method, xlabel="x1", ylim=(0, 5.5))
    axes[1].set_ylabel("predictive standard deviation")
    return figure
