"""The sections of a report. Each is a function that yields pieces of HTML."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import metrics, plots
from .._printable import as_label, printable
from ..distribution import PredictiveDistribution
from ..tables import TableForest

_LONGEST_NAME = 60
_MOST_FEATURES = 20
_FEW_ROWS_TO_SHUFFLE, _MOST_ROWS_TO_SHUFFLE = 50, 300
_MOST_SHUFFLES = 5
_MOST_PREDICTIONS = 10_000
"""Number of rows that are predicted with a shuffled feature. This takes about three seconds."""
_MOST_ROWS_FOR_BANDS = 300
_MOST_STRANGE_ROWS = 10
_STRANGE = 0.99  # share of held-out rows that are more familiar than a strange row
_SCORES = {
    "rmse": ("RMSE", "root of the mean squared error of the predicted mean"),
    "nlpd": ("NLPD", "mean negative log density of the labels"),
    "crps": ("CRPS", "like a mean absolute error, of whole distributions"),
    "coverage_90": ("inside 90%", "share of labels in their 90% interval"),
    "width_90": ("width of 90%", "mean width of these intervals"),
    "worst_coverage_error": ("coverage error", "largest, of intervals of 10% to 90%"),
}


class Evaluation(NamedTuple):
    """A model, the rows that it is evaluated on, and its prediction for them."""

    model: TableForest
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    prediction: PredictiveDistribution
    row_numbers: NDArray[np.int64]

    @property
    def target(self) -> str:
        """Name of the target, short enough to be shown."""
        return _short(self.model.encoder.target)


def scores(evaluation: Evaluation) -> Iterator[str]:
    """Yield the scores as numbers, with their meanings."""
    values = metrics.summary(evaluation.y, evaluation.prediction)
    yield "<h2>Scores</h2><div class=scores>"
    for name, (heading, meaning) in _SCORES.items():
        yield f'<div title="{escape(meaning)}">{heading}<b>{values[name]:.4g}</b></div>'
    yield "</div>"
    yield (
        f'<p class="note">In units of {escape(evaluation.target)}, whose standard deviation is '
        f"{np.std(evaluation.y):.4g} here. "
        + " ".join(f"{heading}: {meaning}." for heading, meaning in _SCORES.values())
        + "</p>"
    )


def calibration(evaluation: Evaluation) -> Iterator[str]:
    """Yield the calibration table, the reliability diagram and the PIT histogram."""
    y, prediction = evaluation.y, evaluation.prediction
    yield "<h2>Do the intervals hold what they promise?</h2><div class=wide><table>"
    yield "<tr><th>interval</th><th>labels inside</th><th>difference</th></tr>"
    for level, observed, error in zip(*metrics.calibration_table(y, prediction), strict=True):
        yield f"<tr><td>{level:.0%}</td><td>{observed:.1%}</td><td>{error:+.1%}</td></tr>"
    yield "</table></div>"
    yield _picture(
        plots.ReliabilityDisplay.from_predictions(y, prediction),
        "Reliability: share of labels inside central intervals. Above the diagonal, they are wider "
        "than need be; below, too narrow.",
    )
    yield _picture(
        plots.PITDisplay.from_predictions(y, prediction),
        "Where in their distribution the labels fall. Flat is right; a hill says too wide, a bowl "
        "too narrow.",
    )


def errors(evaluation: Evaluation) -> Iterator[str]:
    """Yield the plot of errors against predicted standard deviations."""
    yield "<h2>Does the model know where it errs?</h2>"
    yield _picture(
        plots.ErrorDisplay.from_predictions(evaluation.y, evaluation.prediction),
        "Errors against the predicted standard deviation.",
    )


def strange_rows(evaluation: Evaluation) -> Iterator[str]:
    """Yield how well the rows unlike the training data are predicted, and the strangest rows."""
    forest, y, prediction = evaluation.model.forest, evaluation.y, evaluation.prediction
    novelty = forest.novelty(evaluation.X)
    mean, std = prediction.mean(), prediction.std()
    is_inside = np.abs(metrics.pit(y, prediction) - 0.5) <= 0.45
    yield "<h2>Strange rows</h2>"
    if forest.spread_.surroundings is None:
        yield (
            "<p>No rows were held out when the model was fitted, so it is not known how strange "
            "usual rows are.</p>"
        )
    else:
        is_strange = forest.novelty(evaluation.X, rank=True) > _STRANGE
        yield (
            f"<p>A row is strange if it is less like the training data than {_STRANGE:.0%} of the "
            f"rows that were held out when the model was fitted. Strange rows: "
            f"{is_strange.sum():,} of {len(y):,}. By chance it would be about "
            f"{0.01 * len(y):,.12g}.</p>"
        )
        yield "<div class=wide><table><tr><th></th><th>rows</th><th>RMSE</th><th>mean std</th>"
        yield "<th>inside 90%</th></tr>"
        for name, rows in (("strange rows", is_strange), ("other rows", ~is_strange)):
            if rows.any():
                yield (
                    f"<tr><td>{name}</td><td>{rows.sum():,}</td>"
                    f"<td>{metrics.rmse(y[rows], prediction[rows]):.4g}</td>"
                    f"<td>{std[rows].mean():.4g}</td><td>{is_inside[rows].mean():.1%}</td></tr>"
                )
        yield "</table></div>"
    yield "<p>The strangest rows:</p><div class=wide><table><tr><th>row</th><th>novelty</th>"
    yield f"<th>{escape(evaluation.target)}</th><th>prediction</th><th>std</th>"
    yield "<th>inside 90%</th></tr>"
    for row in np.argsort(-novelty, kind="stable")[:_MOST_STRANGE_ROWS]:
        yield (
            f"<tr><td>{evaluation.row_numbers[row]:,}</td><td>{novelty[row]:.3g}</td>"
            f"<td>{y[row]:.4g}</td><td>{mean[row]:.4g}</td><td>{std[row]:.4g}</td>"
            f"<td>{'yes' if is_inside[row] else 'no'}</td></tr>"
        )
    yield (
        '</table></div><p class="note">The novelty of a row is almost 0 beside a training row, and '
        "1 far from all training rows. std: the predicted standard deviation. Inside 90%: whether "
        "the label is in its 90% interval. If there are many more strange rows than by chance, the "
        "table is unlike the training data.</p>"
    )


def features(evaluation: Evaluation) -> Iterator[str]:
    """Yield the importances of the features, and prediction bands along the most important one."""
    model = evaluation.model
    names = [_short(name) for name in model.encoder.feature_names]
    n_rows, n_shuffles = _affordable_shuffles(len(evaluation.y), len(names))
    importances = metrics.permutation_importance(
        model.forest,
        evaluation.X,
        evaluation.y,
        n_repeats=n_shuffles,
        max_rows=max(n_rows, 2),
        random_state=0,
    ).importances_mean
    order = np.argsort(-importances, kind="stable")[:_MOST_FEATURES]
    yield "<h2>Permutation importance of the features</h2>"
    yield "<div class=wide><table><tr><th>feature</th><th>the CRPS rises by</th><th></th></tr>"
    for f in order:
        share = importances[f] / importances[order[0]] if importances[f] > 0.0 else 0.0
        bar = f'<div class="bar" style="width:{12.0 * share:.2f}rem"></div>'
        yield (
            f"<tr><td>{escape(names[f])}</td><td>{importances[f]:.3g}</td>"
            f'<td style="text-align:left;width:12rem">{bar}</td></tr>'
        )
    yield (
        '</table></div><p class="note">How much worse the predictions get if the values of one '
        f"feature are shuffled, in units of {escape(evaluation.target)}: measured on {n_rows:,} of "
        f"the {len(evaluation.y):,} rows. Shuffles of each feature: {n_shuffles}. A feature that "
        "tells nothing is near 0. Features that tell the same share their importance.</p>"
    )
    first = int(order[0])
    some = np.random.default_rng(0).permutation(len(evaluation.y))[:_MOST_ROWS_FOR_BANDS]
    display = plots.PredictionBandDisplay.from_estimator(
        model.forest, evaluation.X[some], feature=first
    )
    display.ax_.set(xlabel=as_label(names[first]), ylabel=as_label(evaluation.target))
    yield _picture(
        display,
        f"Prediction along {names[first]}, all other features as in a typical row. The bands "
        "widen where the model has no data.",
    )


def _affordable_shuffles(n_rows: int, n_features: int) -> tuple[int, int]:
    """Return how many rows to shuffle, and how often. More rows tell more than more shuffles."""
    each = _MOST_PREDICTIONS // n_features
    n_rows = min(n_rows, max(_FEW_ROWS_TO_SHUFFLE, min(each, _MOST_ROWS_TO_SHUFFLE)))
    return n_rows, max(1, min(each // n_rows, _MOST_SHUFFLES))


def _short(name: str) -> str:
    """Return a name with escapes, and not wider than a plot."""
    name = printable(name)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


def _picture(display: Any, text: str) -> str:
    """Return a display as a picture inside the page, with a text below it."""
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    with warnings.catch_warnings():
        # Names of columns may be in scripts that matplotlib's font does not have.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        display.figure_.savefig(content, format="png", dpi=120, bbox_inches="tight")
    plt.close(display.figure_)
    code = base64.b64encode(content.getvalue()).decode()
    words = escape(text)
    return (
        f'<p><img alt="{words}" src="data:image/png;base64,{code}"></p><p class="note">{words}</p>'
    )
