"""What all displays share: colours, axes, and the check of a count."""

from __future__ import annotations

from typing import Any

COLOUR = "#2f6f9f"
SECOND_COLOUR = "#c8553d"


class Display:
    """Base class of all displays. It keeps the axes and the figure that were drawn on."""

    ax_: Any
    figure_: Any

    def _remember(self, ax: Any) -> None:
        self.ax_ = ax
        self.figure_ = ax.figure


def axes_to_draw_on(ax: Any, width: float = 8.0, height: float = 4.5) -> Any:
    """Return the given axes, or the axes of a new figure if ``ax`` is None."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Plots need matplotlib: pip install 'mondrian-forest[plot]'."
        ) from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
