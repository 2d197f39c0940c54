"""The page of a report: title, style, and the sections one after the other."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._printable import printable
from .._version import __version__
from ..tables import TableForest
from .sections import Evaluation, calibration, errors, features, scores, strange_rows

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


def report(
    model: TableForest,
    table: Any,
    *,
    title: str = "Model report",
    row_numbers: ArrayLike | None = None,
) -> str:
    """Return a report on how well a model predicts the rows of a table, as HTML.

    Parameters
    ----------
    model : TableForest
    table : pyarrow.Table
        Rows with the target, which the model should not have learned.
    title : str
    row_numbers : array-like of shape (n_rows,), default=None
        The numbers by which the report names rows. If None, the first row is row 1. They are needed
        if the table is a sample of a larger one.

    Returns
    -------
    str
    """
    X = model.encoder.features(table)
    y = model.encoder.labels(table)
    numbers = np.arange(1, len(y) + 1) if row_numbers is None else np.asarray(row_numbers)
    evaluation = Evaluation(model, X, y, model.forest.predict_distribution(X), numbers)
    sections = (scores, calibration, errors, strange_rows, features)
    body = "\n".join(line for section in sections for line in section(evaluation))
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
