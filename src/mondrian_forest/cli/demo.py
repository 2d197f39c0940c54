"""``mondrian demo``: a forest on generated data, as a table and a picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from .common import fail, messages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from mondrian_forest import MondrianForestRegressor


def demo(
    picture: Annotated[Path, typer.Option(help="Where to save the picture.")] = Path(
        "mondrian-demo.png"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.")] = 0,
) -> None:
    """Fit a forest to a wave with a gap in it, and show how sure it is where.

    Example: mondrian demo --picture bands.png
    """
    if picture.is_dir() or not picture.parent.is_dir():
        fail(f"The picture cannot be saved as {picture}: name a file in a folder.")
    picture = picture if picture.suffix else picture.with_suffix(".png")
    helper = _start_compiling()
    # Slow imports only now, so that the help appears at once.
    from rich.console import Console
    from rich.table import Table

    console = messages()
    with console.status("Loading ...") as status:
        from mondrian_forest import MondrianForestRegressor
        from mondrian_forest.datasets import make_gap_wave
        from mondrian_forest.metrics import nlpd, rmse

        X, y = make_gap_wave(1000, noise=0.15, random_state=seed)
        new_X, new_y = make_gap_wave(1000, noise=0.15, random_state=seed + 1)
        if helper is not None:
            status.update("Compiling, the first time only: ten to twenty seconds ...")
            MondrianForestRegressor(1, spread=1.0).fit(X[:20], y[:20])
            helper.wait()
        forest = MondrianForestRegressor(random_state=seed)
        forest.fit(X[:100], y[:100])  # compiles what is left, on the first run
        start = perf_counter()
        forest.fit(X, y)
        seconds = perf_counter() - start
        found = forest.predict_distribution(new_X)
        low, high = found.interval(0.9).T
        covered = ((low <= new_y) & (new_y <= high)).mean()
        places = {-2.0: "in the data", 0.0: "in the gap", 2.0: "in the data", 9.0: "far outside"}
        shown = forest.predict_distribution([[x] for x in places])

    table = Table(title="Wave with noise; data only for 1 < |x| < 3")
    for heading in ("x", "where", "mean", "std", "90% interval"):
        table.add_column(heading, justify="left" if heading == "where" else "right")
    for x, mean, std, (low, high) in zip(
        places, shown.mean(), shown.std(), shown.interval(0.9), strict=True
    ):
        table.add_row(f"{x:g}", places[x], f"{mean:.2f}", f"{std:.2f}", f"[{low:.2f}, {high:.2f}]")
    out = Console(highlight=False)
    out.print(table)
    out.print(
        f"{forest.n_estimators} trees on 1000 rows, fitted in {seconds:.2f} s. 1000 new rows:"
    )
    out.print(
        f"RMSE {rmse(new_y, found):.3f} (the noise is 0.150), NLPD {nlpd(new_y, found):.2f}, "
        f"{covered:.0%} inside their 90% interval."
    )
    _save_picture(forest, X, y, picture, console)
    console.print("Next: mondrian fit your.csv --target column --holdout 0.1")


def _start_compiling() -> subprocess.Popen[bytes] | None:
    """Let another process compile half of the code, if it was never compiled before."""
    core = Path(__file__).parents[1] / "_core"
    folders = [core / "__pycache__", Path(os.environ.get("NUMBA_CACHE_DIR", core))]
    if any(any(folder.rglob("predict.route-*.nbi")) for folder in folders):
        return None
    return subprocess.Popen(
        [sys.executable, "-m", "mondrian_forest._core.warm_up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _save_picture(
    forest: MondrianForestRegressor,
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    picture: Path,
    console: Console,
) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        console.print("No picture: pip install 'mondrian-forest[plot]' to draw one.")
        return
    matplotlib.use("Agg")
    from mondrian_forest.plots import PredictionBandDisplay

    figure = PredictionBandDisplay.from_estimator(forest, X, y).figure_
    try:
        figure.savefig(picture, dpi=150)
    except (OSError, ValueError, RuntimeError) as error:
        fail(f"The picture cannot be saved as {picture}: {error}.")
    console.print(f"Picture: {picture}")
