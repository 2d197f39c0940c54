"""US flight delays of 2008: the data set of the paper's Tables 1 and 2."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ._bunch import bunch, needed

Order = Literal["aircraft", "file"]

ARCHIVE = "doi:10.7910/DVN/HG7NV7/"  # Data Expo 2009 at the Harvard Dataverse
FLIGHTS = "2008.csv.bz2"
AIRCRAFT = "plane-data.csv"
PREPARED = "us_flights_2008_jan_apr.parquet"

# Of the flights from January to April, in the order of the file; see ``digest``.
KNOWN_DIGEST = "73918a7a2b9310a6084a3fec4eb94cdf051cad1cfa91fb2c6c309b6129c780de"

COLUMNS = {
    "Distance": "distance",
    "AirTime": "air_time",
    "DepTime": "dep_time",
    "ArrTime": "arr_time",
    "DayOfWeek": "day_of_week",
    "DayofMonth": "day_of_month",
    "Month": "month",
    "ArrDelay": "arr_delay",
}
FEATURES = ["plane_age", *(name for name in COLUMNS.values() if name != "arr_delay")]

DESCRIPTION = """\
Arrival delays of US flights in 2008, with eight features.

plane_age: years since the aircraft was built; distance: miles; air_time: minutes; dep_time and
arr_time: local clock times as hours times 100 plus minutes; day_of_week: 1 is Monday;
day_of_month; month. The target, arr_delay, is in minutes.

Source: on-time records of the US Bureau of Transportation Statistics (US government records), as
published for the Data Expo 2009 of the American Statistical Association, doi:10.7910/DVN/HG7NV7.
That copy has the months January to April, of which 2,055,733 flights remain here. An older copy
with the whole year can be put into the folder instead.

Flights that were cancelled or diverted, or that have missing values, are left out. So are flights
whose aircraft is not in the registry or has no year there. Hensman, Fusi and Lawrence, Gaussian
Processes for Big Data (UAI 2013), did the same, and so did the papers that took over their data.
"""


def fetch_us_flights_2008(
    *,
    data_home: str | os.PathLike[str] | None = None,
    order: Order = "aircraft",
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load the flight delays of the paper's Tables 1 and 2. Download them if necessary.

    Parameters
    ----------
    data_home : path, default=None
        Folder for the files of the Data Expo 2009: ``2008.csv.bz2`` (or ``2008.csv``) and
        ``plane-data.csv``. If None, the environment variable ``MONDRIAN_DATA`` names the folder.
        If that is not set, it is a folder in the user's cache.
    order : {"aircraft", "file"}, default="aircraft"
        Order of the rows. With ``"aircraft"``, the flights are grouped by aircraft, in the order of
        each aircraft's first flight. The script that the literature used produced this order, and
        splits such as "the first 700,000 rows" refer to it. With ``"file"``, the rows are in the
        published order, month by month.
    download_if_missing : bool, default=True
        If False, a file that is not there is an error.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Return pandas objects instead of arrays.

    Returns
    -------
    Bunch with ``data`` of shape (n_samples, 8), ``target``, ``frame`` (with ``as_frame=True``),
    ``feature_names``, ``target_names`` and ``DESCR``; or ``(data, target)``.

    Notes
    -----
    The checksum of each download is compared with the one that the archive publishes. The resulting
    table is compared with a known checksum, too.
    """
    if order not in get_args(Order):
        raise ValueError(f"order must be one of {', '.join(get_args(Order))}, got {order!r}.")
    table, by_aircraft = _read(data_home, download_if_missing)
    if order == "aircraft":
        table = table[by_aircraft]
    return bunch(
        table[:, :-1].astype(np.float64, order="C"),
        table[:, -1].astype(np.float64),
        feature_names=list(FEATURES),
        target_name="arr_delay",
        description=DESCRIPTION,
        return_X_y=return_X_y,
        as_frame=as_frame,
    )


def _read(
    data_home: str | os.PathLike[str] | None, download_if_missing: bool
) -> tuple[NDArray[np.int16], NDArray[np.intp]]:
    """Return features and target in the order of the file, and the order of rows by aircraft."""
    chosen = data_home or os.environ.get("MONDRIAN_DATA")
    folder = Path(chosen or needed("pooch", "downloading").os_cache("mondrian-forest")).expanduser()
    if (folder / PREPARED).exists():
        return _read_prepared(folder / PREPARED)
    flights = folder / FLIGHTS
    if (folder / "2008.csv").exists():
        flights = folder / "2008.csv"
    missing = [path.name for path in (flights, folder / AIRCRAFT) if not path.exists()]
    if missing and not download_if_missing:
        raise FileNotFoundError(
            f"{' and '.join(missing)} not found in {folder}: pass the folder with the files of the "
            "Data Expo 2009 as data_home, or allow the download."
        )
    for name in missing:
        _download(name, folder)
    table, by_aircraft = _read_published(flights, folder / AIRCRAFT)
    if FLIGHTS in missing and digest(table) != KNOWN_DIGEST:
        warnings.warn(
            "The downloaded flights differ from those that the documentation of mondrian-forest "
            "refers to. The archive may have changed.",
            stacklevel=3,
        )
    return table, by_aircraft


def _download(name: str, folder: Path) -> None:
    """Download a file from the archive, and compare its checksum with the published one."""
    pooch = needed("pooch", "downloading")
    archive = pooch.create(path=folder, base_url=ARCHIVE)
    try:
        archive.load_registry_from_doi()
        archive.fetch(name, progressbar=True)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{name} could not be downloaded from {ARCHIVE} ({error}): download it by hand, and "
            "pass its folder as data_home."
        ) from error


def _read_prepared(path: Path) -> tuple[NDArray[np.int16], NDArray[np.intp]]:
    """Read a prepared table, grouped by aircraft, with each row's place in the published file."""
    parquet = needed("pyarrow.parquet", f"reading {PREPARED}")
    table = parquet.read_table(path)
    columns = [table[name].to_numpy() for name in [*FEATURES, "arr_delay"]]
    to_file = np.argsort(table["raw_row"].to_numpy())
    return np.column_stack(columns).astype(np.int16)[to_file], np.argsort(to_file)


def _read_published(flights: Path, aircraft: Path) -> tuple[NDArray[np.int16], NDArray[np.intp]]:
    """Read the flights that took place, and join them to the registry of aircraft."""
    pandas = needed("pandas", "reading the files of the Data Expo")
    flags = ["Cancelled", "Diverted"]
    try:
        table = pandas.read_csv(
            flights, usecols=[*COLUMNS, *flags, "TailNum"], dtype={"TailNum": str}
        )
        registry = pandas.read_csv(aircraft, usecols=["tailnum", "year"])
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{flights.name} and {aircraft.name} in {flights.parent} cannot be read as files of "
            f"the Data Expo 2009 ({error}): remove them, and they will be downloaded again."
        ) from error
    # Unknown years are empty, None or 0000 in the registry.
    built = pandas.to_numeric(registry.set_index("tailnum")["year"], errors="coerce")
    built = built[(built > 0) & ~built.index.duplicated()]
    table["plane_age"] = 2008 - table["TailNum"].map(built)
    table = table[(table[flags] == 0).all(axis=1)].dropna(subset=["plane_age", *COLUMNS])
    by_aircraft = np.argsort(pandas.factorize(table["TailNum"])[0], kind="stable")
    return table[["plane_age", *COLUMNS]].to_numpy().astype(np.int16), by_aircraft


def digest(table: NDArray[np.int16]) -> str:
    """Return the SHA-256 of a table, stored row by row as little-endian 16-bit integers."""
    return hashlib.sha256(table.astype("<i2").tobytes()).hexdigest()
