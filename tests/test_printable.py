import matplotlib.figure
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mondrian_forest._printable import MOST_LETTERS, as_label, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\x1b[31m", "\\x1b[31m"), ("a\u202eb", "a\\u202eb"), ("Stra\u00dfe 1", "Stra\u00dfe 1")],
)
def test_control_characters_are_escaped(text, expected):
    assert printable(text) == expected


@pytest.mark.parametrize("name", ["$x$", "a$", r"\$x\$", "$$", r"a\$b$c$"])
def test_dollars_in_a_label_do_not_begin_a_formula(name):
    figure = matplotlib.figure.Figure()
    FigureCanvasAgg(figure)
    literal = figure.text(0, 0, name, parse_math=False).get_window_extent()
    label = figure.text(0, 0, as_label(name)).get_window_extent()
    assert label.bounds == literal.bounds


def test_a_long_label_is_cut():
    assert as_label("x" * 5000) == "x" * (MOST_LETTERS - 3) + "..."
