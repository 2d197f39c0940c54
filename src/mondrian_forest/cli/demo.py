"""``mondrian demo``: fit a forest to generated data, print predictions, save a plot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .common import check_can_save, fail, messages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from mondrian_forest import MondrianForestRegressor

N_ROWS, N_TREES = 100, 12
NOISE = 0.15
PLACES = {-2.0: "in the data", 0.0: "in the gap", 2.0: "in the data", 9.0: "far outside"}


def demo(
    picture: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path(
        "mondrian-demo.png"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.")] = 0,
) -> None:
    """Fit a forest to a noisy wave with a region without data, and plot its predictions.

    It prints means, standard deviations and intervals in the data, in the gap and far outside.

    Example: mondrian demo --picture bands.png
    """
    check_can_save("picture", picture)
    picture = picture if picture.suffix else picture.with_suffix(".png")
    console = messages()
    with console.status("Loading ..."):
        from mondrian_forest._core.arrays.kernel import IS_COMPILED, has_cached_code
        from mondrian_forest._core.mixtures.mixture import sort_components
    # The forest here is so small that it is fitted long before a compiler would be done. Sorting
    # is a part of computing quantiles, the last thing that the demo would compile.
    if IS_COMPILED and not has_cached_code(sort_components):
        raise typer.Exit(_run_without_compiler())
    import numpy as np

    with console.status("Fitting ..."), np.errstate(over="ignore"):
        fitted = _fit(seed)
        table, scores = _predictions(fitted.forest), _scores(fitted.forest, seed)
    _print(table, fitted.seconds, scores, is_compiled=IS_COMPILED)
    with console.status("Drawing ..."), np.errstate(over="ignore"):
        message = _save_picture(fitted, picture)
    console.print(message)
    console.print("Next: mondrian fit your.csv --target column --holdout 0.1")
    if not IS_COMPILED:
        console.print("Your first fit compiles the code, in up to half a minute. Later fits do "
                      "not.")  # fmt: skip


class _Fitted(NamedTuple):
    """A forest, the rows that it has learned, and the time of the fit."""

    forest: MondrianForestRegressor
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    seconds: float


def _run_without_compiler() -> int:
    """Run the same command in a new process without compilation, and return its exit code.

    Numba must know before it is imported whether to compile.
    """
    program = "from mondrian_forest.cli import main; main()"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    return subprocess.call([sys.executable, "-P", "-c", program, *sys.argv[1:]], env=environment)


def _fit(seed: int) -> _Fitted:
    from mondrian_forest import MondrianForestRegressor
    from mondrian_forest.datasets import make_gap_wave

    X, y = make_gap_wave(N_ROWS, noise=NOISE, random_state=seed)
    # Without compilation, the spread and a mean function would take longer than everything else.
    forest = MondrianForestRegressor(N_TREES, spread=1.0, mean_function=None, random_state=seed)
    start = perf_counter()
    forest.fit(X, y)
    return _Fitted(forest, X, y, perf_counter() - start)


def _predictions(forest: MondrianForestRegressor) -> Table:
    """Return a table of predictions at places where the forest knows much or little."""
    from rich.table import Table

    table = Table(title="Wave with noise; data only for 1 < |x| < 3")
    for heading in ("x", "where", "mean", "std", "90% interval"):
        table.add_column(heading, justify="left" if heading == "where" else "right")
    prediction = forest.predict_distribution([[x] for x in PLACES])
    for x, mean, std, (low, high) in zip(
        PLACES, prediction.mean(), prediction.std(), prediction.interval(0.9), strict=True
    ):
        table.add_row(f"{x:g}", PLACES[x], f"{mean:.2f}", f"{std:.2f}", f"[{low:.2f}, {high:.2f}]")
    return table


def _scores(forest: MondrianForestRegressor, seed: int) -> str:
    """Return a sentence about how well the forest predicts new rows."""
    from mondrian_forest.datasets import make_gap_wave
    from mondrian_forest.metrics import nlpd, rmse

    X, y = make_gap_wave(N_ROWS, noise=NOISE, random_state=seed + 1)
    prediction = forest.predict_distribution(X)
    coverage = (abs(prediction.cdf(y) - 0.5) <= 0.45).mean()
    return (
        f"On {N_ROWS} new rows: RMSE {rmse(y, prediction):.3f} (the noise is {NOISE:.3f}), "
        f"NLPD {nlpd(y, prediction):.2f}, {coverage:.0%} inside their 90% interval."
    )


def _print(table: Table, seconds: float, scores: str, *, is_compiled: bool) -> None:
    from rich.console import Console

    out = Console(highlight=False)
    out.print(table)
    note = "" if is_compiled else ", without compilation"
    out.print(f"{N_TREES} trees fitted to {N_ROWS} rows in {seconds:.2f} s{note}.")
    out.print(scores)


def _save_picture(fitted: _Fitted, picture: Path) -> str:
    """Save a plot of the prediction bands, and return a message about it."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return "No picture was saved. To draw one: pip install 'mondrian-forest[plot]'."
    matplotlib.use("Agg")
    display = _bands(fitted)
    try:
        display.figure_.savefig(picture, dpi=150)
    except (OSError, ValueError, RuntimeError) as error:
        fail(f"The picture cannot be saved as {picture}: {error}.")
    return f"Picture: {picture}"


def _bands(fitted: _Fitted) -> Any:
    import numpy as np

    from mondrian_forest.plots import PredictionBandDisplay

    places = np.linspace(-5.0, 5.0, 101)
    prediction = fitted.forest.predict_distribution(places[:, None])
    display = PredictionBandDisplay.from_predictions(places, prediction, feature_name="x")
    display.ax_.plot(fitted.X[:, 0], fitted.y, ".", color="black", markersize=3, label="data")
    display.ax_.legend()
    return display
