import os
from pathlib import Path

# Read by SciPy when it is imported; without it scikit-learn skips its array API checks.
os.environ["SCIPY_ARRAY_API"] = "1"
# Read by Matplotlib when it is imported: no test may open a window.
os.environ["MPLBACKEND"] = "Agg"
# Read by Dask when it is imported: workers are copies of a process that has loaded it already.
if hasattr(os, "fork"):
    os.environ["DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"] = "forkserver"

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("MONDRIAN_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(autouse=True)
def _arithmetic_of_compiled_code():
    """Integers wrap around and floats overflow silently in kernels, compiled or not."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    else:
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_data_of_the_user():
    """Results do not depend on a variable that is set or not; ``data_directory`` has read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MONDRIAN_DATA", raising=False)
        yield


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Folder of the real data sets: MONDRIAN_DATA, or shared/data beside the project."""
    if not DATA.is_dir():
        pytest.skip("the real data is not at hand: set MONDRIAN_DATA to its folder")
    return DATA


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with tables of houses, and a model of them."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from command import succeed_here
    from houses import houses

    folder = tmp_path_factory.mktemp("houses")
    pa.csv.write_csv(houses(400, 0), folder / "houses.csv")
    pa.csv.write_csv(houses(100, 1), folder / "more.csv")
    pa.parquet.write_table(houses(100, 1), folder / "more.parquet")
    succeed_here(
        "fit", "houses.csv", "--target", "price", "--drop", "id", "--trees", 5, "-o", "houses.mf",
        cwd=folder,
    )  # fmt: skip
    return folder
