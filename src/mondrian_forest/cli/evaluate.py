"""``mondrian evaluate``: score a model on rows with known labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    Delimiter,
    Jobs,
    Json,
    check_can_save,
    errors_as_messages,
    fail,
    messages,
    print_result,
    refuse_to_overwrite,
    tell,
)

if TYPE_CHECKING:
    from mondrian_forest.tables import TableForest


def evaluate(
    model: Annotated[Path, typer.Argument(help="Model file that mondrian fit has written.")],
    table: Annotated[
        Path, typer.Argument(help="Table with the target, and with rows that the model never saw.")
    ],
    report: Annotated[
        Path | None, typer.Option(help="Write a report with plots, as one HTML file.")
    ] = None,
    most_rows: Annotated[
        int, typer.Option(min=2, help="Evaluate on a random sample of at most this many rows.")
    ] = 20_000,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    json: Json = False,
) -> None:
    """Score a model: RMSE, NLPD, CRPS and coverage of intervals.

    Use rows that the model has not learned. On rows that it knows, the scores are too good.

    Example: mondrian evaluate houses.mf sold_since.csv --report report.html
    """
    if report is not None:
        check_can_save("report", report)
    refuse_to_overwrite((model, table), report)
    with errors_as_messages(), messages().status("Loading ...") as status:
        from mondrian_forest.io.replace import check_replaceable
        from mondrian_forest.metrics import summary
        from mondrian_forest.tables import TableFile, TableForest
        from mondrian_forest.tables.files import sample_rows

        if report is not None:
            check_replaceable(report)
        known = TableForest.load(model, mmap=True)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, columns=known.columns)
        rows, numbers, n_rows = sample_rows(map(known.encoder.typed, file.batches()), most_rows)
        if len(rows) < 2:
            fail(f"{str(table)!r} has too few rows to evaluate on: {len(rows)}.")
        status.update("Evaluating ...")
        scores = summary(known.encoder.labels(rows), known.predict_distribution(rows))
        if report is not None:
            status.update("Drawing ...")
            _write_report(report, known, rows, numbers, title=f"{model.name} on {table.name}")
    # After the status line, which would take what is printed below it to where it stands itself.
    print_result({"rows": n_rows, "rows evaluated": len(rows), **scores}, json)
    if report is not None:
        tell(f"Report: {report}")


def _write_report(path: Path, model: TableForest, rows: Any, numbers: Any, *, title: str) -> None:
    from mondrian_forest.io.replace import replacing

    try:
        import matplotlib
    except ModuleNotFoundError:
        fail("A report needs matplotlib: pip install 'mondrian-forest[plot]'.")
    matplotlib.use("Agg")
    from mondrian_forest.report import report

    page = report(model, rows, title=title, row_numbers=numbers)
    with replacing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
