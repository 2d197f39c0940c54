"""``mondrian demo``: a forest on generated data, as a table and a picture."""

from __future__ import annotations

import os
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

N_ROWS, N_TREES = 100, 12


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
    is_compiled = _is_compiled()
    if not is_compiled:
        # So few rows are fitted before a compiler would have begun. Numba reads this as it loads.
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    # Slow imports only now, so that the help appears at once.
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    console = messages()
    with console.status("Loading ...") as status, np.errstate(over="ignore"):
        from mondrian_forest import MondrianForestRegressor
        from mondrian_forest.datasets import make_gap_wave
        from mondrian_forest.metrics import nlpd, rmse

        X, y = make_gap_wave(N_ROWS, noise=0.15, random_state=seed)
        new_X, new_y = make_gap_wave(N_ROWS, noise=0.15, random_state=seed + 1)
        status.update("Fitting ...")
        # Uncompiled, learning the spread would take longer than all else.
        forest = MondrianForestRegressor(N_TREES, spread=1.0, random_state=seed)
        start = perf_counter()
        forest.fit(X, y)
        seconds = perf_counter() - start
        found = forest.predict_distribution(new_X)
        covered = (abs(found.cdf(new_y) - 0.5) <= 0.45).mean()
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
    pace = "" if is_compiled else ", not compiled yet"
    out.print(
        f"{N_TREES} trees on {N_ROWS} rows, fitted in {seconds:.2f} s{pace}. {N_ROWS} new rows:"
    )
    out.print(
        f"RMSE {rmse(new_y, found):.3f} (the noise is 0.150), NLPD {nlpd(new_y, found):.2f}, "
        f"{covered:.0%} inside their 90% interval."
    )
    with console.status("Drawing ..."), np.errstate(over="ignore"):
        _save_picture(forest, X, y, picture, console)
    console.print("Next: mondrian fit your.csv --target column --holdout 0.1")
    if not is_compiled:
        console.print("The first fit compiles, for some twenty seconds; later ones do not.")


def _is_compiled() -> bool:
    """Tell whether this version has predicted quantiles, and so compiled all of this, before."""
    core = Path(__file__).parents[1] / "_core"
    folders = [core / "__pycache__", Path(os.environ.get("NUMBA_CACHE_DIR") or core)]
    kept = [index for folder in folders for index in folder.rglob("mixture._quantiles-*.nbi")]
    since = (core / "mixture.py").stat().st_mtime
    return any(index.stat().st_mtime > since for index in kept)


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
    import numpy as np

    from mondrian_forest.plots import PredictionBandDisplay

    places = np.linspace(-5.0, 5.0, 101)
    found = forest.predict_distribution(places[:, None])
    display = PredictionBandDisplay.from_predictions(places, found, feature_name="x")
    display.ax_.plot(X[:, 0], y, ".", color="black", markersize=3, label="data")
    display.ax_.legend()
    try:
        display.figure_.savefig(picture, dpi=150)
    except (OSError, ValueError, RuntimeError) as error:
        fail(f"The picture cannot be saved as {picture}: {error}.")
    console.print(f"Picture: {picture}")
