"""``mondrian evaluate``: how good a model is on rows with known labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    Delimiter,
    Jobs,
    Json,
    fail,
    faults_told,
    messages,
    refuse_inputs,
    show,
    tell,
)


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file of mondrian fit.")],
    table: Annotated[
        Path, typer.Argument(help="Rows with the target that the model has not seen.")
    ],
    report: Annotated[
        Path | None, typer.Option(help="Write a report with pictures: one HTML file.")
    ] = None,
    most_rows: Annotated[
        int, typer.Option(min=2, help="Of a larger table, so many rows are drawn at random.")
    ] = 20_000,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    json: Json = False,
) -> None:
    """Score a model: RMSE, NLPD, CRPS, coverage of intervals.

    Use rows that the model has not seen, or the scores flatter it.

    Example: mondrian evaluate houses.mf sold_since.csv --report report.html
    """
    if report is not None and not (report.parent.is_dir() and not report.is_dir()):
        fail(f"The report cannot be saved as {str(report)!r}: name a file in a folder.")
    refuse_inputs(report, (model, table))
    with faults_told(), messages().status("Loading ...") as status:
        from mondrian_forest.io.replace import check_replaceable, replacing
        from mondrian_forest.metrics import summary
        from mondrian_forest.tables import TableFile, TableForest
        from mondrian_forest.tables.files import sample_rows

        if report is not None:
            check_replaceable(report)
        known = TableForest.load(model, mmap=True)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, columns=known.columns)
        rows, n_rows = sample_rows(map(known.encoder.typed, file.batches()), most_rows)
        status.update("Evaluating ...")
        if len(rows) < 2:
            fail(f"{str(table)!r} has too few rows to evaluate on: {len(rows)}.")
        scores = summary(known.encoder.labels(rows), known.predict_distribution(rows))
        show({"rows": n_rows, "rows evaluated": len(rows), **scores}, json)
        if report is not None:
            status.update("Drawing ...")
            try:
                import matplotlib
            except ModuleNotFoundError:
                fail("A report needs matplotlib: pip install 'mondrian-forest[plot]'.")
            matplotlib.use("Agg")
            from mondrian_forest.report import report as written

            page = written(known, rows, title=f"{model.name} on {table.name}")
            with replacing(report) as unfinished:
                unfinished.write_text(page, encoding="utf-8")
    if report is not None:
        tell(f"Report: {report}")
