import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from command import succeed


def houses(n_rows, seed):
    random = np.random.default_rng(seed)
    town = random.choice(["Linz", "Graz", "Wien"], n_rows)
    area = random.integers(30, 200, n_rows)
    sold = [
        datetime.date(2020, 1, 1) + datetime.timedelta(int(day))
        for day in random.integers(0, 1500, n_rows)
    ]
    level = np.select([town == "Linz", town == "Graz"], [3.0, 2.5], 5.0)
    return pa.table(
        {
            "id": 10**16 + np.arange(n_rows),
            "sold": sold,
            "town": town,
            "area": area,
            "garden": random.random(n_rows) < 0.3,
            "price": np.round(level * area + 20.0 * random.normal(size=n_rows), 1),
        }
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with tables of houses, and a model of them."""
    folder = tmp_path_factory.mktemp("houses")
    pa.csv.write_csv(houses(400, 0), folder / "houses.csv")
    pa.csv.write_csv(houses(100, 1), folder / "more.csv")
    pa.parquet.write_table(houses(100, 1), folder / "more.parquet")
    succeed(
        "fit", "houses.csv", "--target", "price", "--drop", "id", "--trees", 5, "-o", "houses.mf",
        cwd=folder,
    )  # fmt: skip
    return folder
