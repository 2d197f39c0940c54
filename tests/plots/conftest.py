import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mondrian_forest import MondrianForestRegressor


@pytest.fixture(autouse=True)
def _close_figures():
    plt.close("all")  # tests in other folders may have left figures open
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def data():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.random((100, 2)), columns=["width", "height"])
    return X, X["width"].to_numpy()


@pytest.fixture(scope="session")
def fitted(data):
    X, y = data
    return MondrianForestRegressor(5, mean_function=None, random_state=0).fit(X.to_numpy(), y)


@pytest.fixture(scope="session")
def held_out():
    X = np.random.default_rng(1).random((200, 2))
    return X, X[:, 0]


@pytest.fixture
def drawn():
    """Return a function that draws a display completely, and returns its texts."""

    def draw(display):
        display.figure_.canvas.draw()
        ax = display.ax_
        legend = ax.get_legend()
        return [ax.get_xlabel(), ax.get_ylabel()] + (
            [text.get_text() for text in legend.get_texts()] if legend else []
        )

    return draw
