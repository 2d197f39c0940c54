import numpy as np
import pytest

from command import succeed_here


@pytest.fixture
def write_table():
    """Return a function that writes a CSV file of numbers with three columns."""

    def write(path, names="a,b,y", n_rows=40, cell=None):
        """Write ``cell``, if given, in place of the first value of row 20."""
        random = np.random.default_rng(0)
        rows = [[f"{value:.4f}" for value in line] for line in random.random((n_rows, 3))]
        if cell is not None:
            rows[19][0] = cell
        path.write_text(names + "\n" + "".join(",".join(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def small_fit():
    """Options of a fit that takes little time."""
    return ("-t", "y", "--trees", 2, "--paper", "--jobs", 1)


@pytest.fixture
def small_model(write_table, small_fit, tmp_path):
    """A model ``m.mf`` of the table ``t.csv`` in the same folder."""
    succeed_here("fit", write_table(tmp_path / "t.csv"), *small_fit, "-o", tmp_path / "m.mf")
    return tmp_path / "m.mf"
