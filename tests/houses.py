"""A table with all kinds of columns."""

import datetime

import numpy as np
import pyarrow as pa


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
