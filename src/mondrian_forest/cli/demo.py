"""``mondrian demo``: a forest on generated data, as a table and a picture."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

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
    """Fit a forest to a wave with a gap in it, and show how sure it is where."""
    if picture.is_dir() or not picture.parent.is_dir():
        typer.echo(f"The picture cannot be saved as {picture}: name a file in a folder.", err=True)
        raise typer.Exit(1)
    picture = picture if picture.suffix else picture.with_suffix(".png")
    # Slow imports only now, so that the help appears at once.
    from rich.console import Console
    from rich.table import Table

    messages = Console(stderr=True, markup=False)
    with messages.status("Loading, and compiling on the first run ..."):
        from mondrian_forest import MondrianForestRegressor
        from mondrian_forest.datasets import make_gap_wave

        noise = 0.15
        X, y = make_gap_wave(1000, noise=noise, random_state=seed)
        held_out_X, held_out_y = make_gap_wave(1000, noise=noise, random_state=seed + 1)
        forest = MondrianForestRegressor(noise_variance=noise**2, random_state=seed)
        forest.fit(X[:20], y[:20])  # compiles, on the first run
        start = perf_counter()
        forest.fit(X, y)
        seconds = perf_counter() - start
        held_out = forest.predict_distribution(held_out_X)
        places = {-2.0: "in the data", 0.0: "in the gap", 2.0: "in the data", 9.0: "far outside"}
        shown = forest.predict_distribution([[x] for x in places])

    table = Table(title="Wave with noise; data only for 1 < |x| < 3")
    for heading in ("x", "where", "mean", "std", "90% interval"):
        table.add_column(heading, justify="left" if heading == "where" else "right")
    for x, mean, std, (low, high) in zip(
        places, shown.mean(), shown.std(), shown.interval(0.9), strict=True
    ):
        table.add_row(f"{x:g}", places[x], f"{mean:.2f}", f"{std:.2f}", f"[{low:.2f}, {high:.2f}]")
    out = Console()
    out.print(table)
    ends = held_out.interval(0.9)
    covered = ((held_out_y >= ends[:, 0]) & (held_out_y <= ends[:, 1])).mean()
    out.print(f"25 trees on 1000 rows, fitted in {seconds:.2f} s.")
    out.print(
        f"1000 new rows: mean log density {held_out.logpdf(held_out_y).mean():.2f}, "
        f"{covered:.0%} inside their 90% interval."
    )
    _save_picture(forest, X, y, picture, messages)


def _save_picture(
    forest: MondrianForestRegressor,
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    picture: Path,
    messages: Console,
) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        messages.print("No picture: pip install 'mondrian-forest[plot]' to draw one.")
        return
    matplotlib.use("Agg")
    from mondrian_forest.plots import PredictionBandDisplay

    figure = PredictionBandDisplay.from_estimator(forest, X, y).figure_
    try:
        figure.savefig(picture, dpi=150)
    except (OSError, ValueError, RuntimeError) as error:
        messages.print(f"The picture cannot be saved as {picture}: {error}.")
        raise typer.Exit(1) from None
    messages.print(f"Picture: {picture}")
