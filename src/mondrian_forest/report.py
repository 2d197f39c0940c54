"""A report on how good a model is, as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import metrics, plots
from ._printable import as_label, printable
from ._version import __version__
from .tables import TableForest

_LONGEST_NAME = 60
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; margin: 0 auto;
       max-width: 60rem; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
p { max-width: 44rem; } .note { color: #55626f; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: right; }
th { font-weight: 600; border-bottom: 2px solid #c9d3dc; } td { border-bottom: 1px solid #e4e9ee; }
th:first-child, td:first-child { text-align: left; }
.scores { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; }
.scores div { background: #f2f6fa; border-radius: .5rem; padding: .6rem .8rem; }
.scores b { display: block; font-size: 1.35rem; }
img { max-width: 100%; height: auto; }
.bar { background: #2d6a9f; height: .7rem; min-width: 1px; border-radius: .2rem; }
"""

_SCORES = {
    "rmse": ("RMSE", "root of the mean squared error of the predicted mean"),
    "nlpd": ("NLPD", "mean negative log density of the labels"),
    "crps": ("CRPS", "like a mean absolute error, of whole distributions"),
    "coverage_90": ("inside 90%", "share of labels in their 90% interval"),
    "width_90": ("width of 90%", "mean width of these intervals"),
    "worst_coverage_error": ("coverage error", "largest, of intervals of 10% to 90%"),
}


def report(model: TableForest, table: Any, *, title: str = "Model report") -> str:
    """Return a report on how well a model predicts the rows of a table, as HTML.

    Parameters
    ----------
    model : TableForest
    table : pyarrow.Table
        With the target.
    title : str
    """
    X = model.encoder.features(table)
    y = model.encoder.labels(table)
    prediction = model.forest.predict_distribution(X)
    body = "\n".join(_sections(model, X, y, prediction))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(printable(title))}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(printable(title))}</h1>
<p class="note">{len(y):,} rows. The model has learned {model.forest.n_samples_seen_:,}; if these
are among them, the scores flatter it. mondrian-forest {escape(__version__)}.</p>
{body}
</body>
</html>
"""


def _sections(
    model: TableForest, X: NDArray[np.float64], y: NDArray[np.float64], prediction: Any
) -> Iterator[str]:
    target = _name(model.encoder.target)
    scores = metrics.summary(y, prediction)
    yield "<h2>Scores</h2><div class=scores>"
    for name, (heading, meaning) in _SCORES.items():
        yield f'<div title="{escape(meaning)}">{heading}<b>{scores[name]:.4g}</b></div>'
    yield "</div>"
    yield (
        f'<p class="note">In units of {escape(target)}, whose standard deviation is '
        f"{np.std(y):.4g} here. "
        + " ".join(f"{heading}: {meaning}." for heading, meaning in _SCORES.values())
        + "</p>"
    )
    calibration = metrics.calibration_table(y, prediction)
    yield "<h2>Do the intervals hold what they promise?</h2><div class=wide><table>"
    yield "<tr><th>interval</th><th>labels inside</th><th>difference</th></tr>"
    for level, observed, error in zip(*calibration, strict=True):
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
    yield "<h2>Does the model know where it errs?</h2>"
    yield _picture(
        plots.ErrorDisplay.from_predictions(y, prediction),
        "Errors against the predicted standard deviation.",
    )
    yield "<h2>What the prediction depends on</h2>"
    names = [_name(name) for name in model.encoder.feature_names]
    importances = model.forest.feature_importances_
    order = np.argsort(-importances)[:20]
    yield "<div class=wide><table><tr><th>feature</th><th>rate of cuts</th><th></th></tr>"
    for f in order:
        width = 12.0 * importances[f] / importances.max()
        bar = f'<div class="bar" style="width:{width:.2f}rem"></div>'
        yield (
            f"<tr><td>{escape(names[f])}</td><td>{importances[f]:.1%}</td>"
            f'<td style="text-align:left;width:12rem">{bar}</td></tr>'
        )
    yield "</table></div>"
    few = np.random.default_rng(0).permutation(len(y))[:300]
    display = plots.PredictionBandDisplay.from_estimator(
        model.forest, X[few], feature=int(order[0])
    )
    display.ax_.set(xlabel=as_label(names[order[0]]), ylabel=as_label(target))
    yield _picture(
        display,
        f"Prediction along {names[order[0]]}, all other features as in a typical row. The bands "
        "widen where the model has no data.",
    )


def _name(name: str) -> str:
    """Return a name with escapes, and not wider than a picture."""
    name = printable(name)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


def _picture(display: Any, text: str) -> str:
    """Return a display as a picture within the page."""
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    with warnings.catch_warnings():  # names of columns may be in any script
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        display.figure_.savefig(content, format="png", dpi=120, bbox_inches="tight")
    plt.close(display.figure_)
    code = base64.b64encode(content.getvalue()).decode()
    words = escape(text)
    return (
        f'<p><img alt="{words}" src="data:image/png;base64,{code}"></p><p class="note">{words}</p>'
    )
