"""The loader of US flights, tested on made-up files in the format of the Data Expo 2009."""

import bz2
import hashlib
import http.server
import json
import threading
import warnings
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet
import pytest

from mondrian_forest.datasets import fetch_us_flights_2008
from mondrian_forest.datasets.us_flights import KNOWN_DIGEST, digest

HEADER = (
    "Year,Month,DayofMonth,DayOfWeek,DepTime,CRSDepTime,ArrTime,CRSArrTime,UniqueCarrier,"
    "FlightNum,TailNum,ActualElapsedTime,CRSElapsedTime,AirTime,ArrDelay,DepDelay,Origin,Dest,"
    "Distance,TaxiIn,TaxiOut,Cancelled,CancellationCode,Diverted,CarrierDelay,WeatherDelay,"
    "NASDelay,SecurityDelay,LateAircraftDelay"
)


def flight(tail, *, delay, month=1, air_time=100, cancelled=0, diverted=0):
    return (
        f"2008,{month},3,4,2003,1955,2211,2225,XX,335,{tail},128,150,{air_time},{delay},8,AAA,BBB,"
        f"810,4,8,{cancelled},,{diverted},NA,NA,NA,NA,NA"
    )


FLIGHTS = "\n".join(
    [
        HEADER,
        flight("N2", delay="NA", cancelled=1, air_time="NA"),
        flight("N1", delay=-14),
        flight("N2", delay=2),
        flight("N3", delay=3),  # no year in the registry
        flight("N1", delay=4, month=2),
        flight("N4", delay=5),  # year 0000
        flight("", delay=6),
        flight("N9", delay=7),  # not in the registry
        flight("N2", delay=8, diverted=1),
        flight("N2", delay=9, month=2),
        flight("N1", delay="NA"),
        flight("N1", delay=11, month=3),
        "",
    ]
)
AIRCRAFT = (
    "tailnum,type,manufacturer,issue_date,model,status,aircraft_type,engine_type,year\n"
    "N1,Corporation,X,02/13/2004,Y,Valid,Z,W,1998\n"
    "N2,Corporation,X,02/13/2004,Y,Valid,Z,W,2004\n"
    "N3,Corporation,X,02/13/2004,Y,Valid,Z,W,None\n"
    "N4,Corporation,X,02/13/2004,Y,Valid,Z,W,0000\n"
    "N5\n"
)


@pytest.fixture
def files():
    return {
        "2008.csv.bz2": bz2.compress(FLIGHTS.encode()),
        "plane-data.csv": AIRCRAFT.encode(),
    }


@pytest.fixture
def folder(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_flights_are_grouped_by_aircraft_in_the_order_of_first_flights(folder):
    loaded = fetch_us_flights_2008(data_home=folder, download_if_missing=False)
    np.testing.assert_array_equal(loaded.target, [-14, 4, 11, 2, 9])
    np.testing.assert_array_equal(loaded.data[:, 0], [10, 10, 10, 4, 4])
    assert loaded.feature_names == [
        "plane_age", "distance", "air_time", "dep_time", "arr_time", "day_of_week", "day_of_month",
        "month",
    ]  # fmt: skip
    np.testing.assert_array_equal(loaded.data[0], [10, 810, 100, 2003, 2211, 4, 3, 1])


def test_flights_in_the_order_of_the_file(folder):
    X, y = fetch_us_flights_2008(data_home=folder, order="file", return_X_y=True)
    np.testing.assert_array_equal(y, [-14, 2, 4, 9, 11])
    np.testing.assert_array_equal(X[:, 7], [1, 1, 2, 2, 3])


def test_an_uncompressed_file_is_read_too(folder):
    (folder / "2008.csv.bz2").unlink()
    (folder / "2008.csv").write_text(FLIGHTS)
    assert len(fetch_us_flights_2008(data_home=folder, download_if_missing=False).target) == 5


def test_flights_as_a_frame(folder):
    loaded = fetch_us_flights_2008(data_home=folder, as_frame=True)
    assert list(loaded.frame.columns) == [*loaded.feature_names, "arr_delay"]


def test_the_folder_can_be_set_by_an_environment_variable(folder, monkeypatch):
    monkeypatch.setenv("MONDRIAN_DATA", str(folder))
    assert len(fetch_us_flights_2008(download_if_missing=False).target) == 5


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"2008.csv.bz2 and plane-data.csv not found"):
        fetch_us_flights_2008(data_home=tmp_path, download_if_missing=False)


def test_a_truncated_file_is_refused(folder, files):
    (folder / "2008.csv.bz2").write_bytes(files["2008.csv.bz2"][:-20])
    with pytest.raises(ValueError, match=r"cannot be read as files of the Data Expo 2009"):
        fetch_us_flights_2008(data_home=folder)


def test_a_file_with_other_columns_is_refused(folder):
    (folder / "plane-data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"cannot be read as files of the Data Expo 2009"):
        fetch_us_flights_2008(data_home=folder)


def test_an_unknown_order_is_refused(folder):
    with pytest.raises(ValueError, match="order must be one of aircraft, file"):
        fetch_us_flights_2008(data_home=folder, order="time")


class _Archive(http.server.BaseHTTPRequestHandler):
    """Answers like a Dataverse: lists the files of a data set, and sends them by number."""

    def do_GET(self):
        path = unquote(self.path)
        names = list(self.server.files)
        if path.startswith("/api/datasets/:persistentId"):
            listing = [
                {"dataFile": {"id": number, "filename": name, "md5": self.server.checksums[name]}}
                for number, name in enumerate(names)
            ]
            answer = json.dumps({"data": {"latestVersion": {"files": listing}}}).encode()
        else:
            answer = self.server.files[names[int(path.rsplit("/", 1)[1])]]
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def archive(files, monkeypatch):
    """A local archive that stands in for the one that the data set's identifier leads to."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Archive)
    server.files = files
    server.checksums = {
        name: hashlib.md5(content, usedforsecurity=False).hexdigest()
        for name, content in files.items()
    }
    address = f"http://127.0.0.1:{server.server_port}/dataset"
    monkeypatch.setattr("pooch.downloaders.doi_to_url", lambda *_, **__: address)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_that_are_not_there_are_downloaded_once(tmp_path, archive):
    with pytest.warns(UserWarning, match="differ from those"):
        first = fetch_us_flights_2008(data_home=tmp_path / "new")
    archive.files.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = fetch_us_flights_2008(data_home=tmp_path / "new")
    np.testing.assert_array_equal(first.target, [-14, 4, 11, 2, 9])
    np.testing.assert_array_equal(first.data, again.data)


def test_a_download_with_a_wrong_checksum_is_refused(tmp_path, archive):
    archive.checksums["plane-data.csv"] = "0" * 32
    with pytest.raises(OSError, match=r"plane-data.csv could not be downloaded"):
        fetch_us_flights_2008(data_home=tmp_path)
    assert not (tmp_path / "plane-data.csv").exists()


def test_without_a_network_an_error_says_what_to_do(tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise OSError("no route")

    monkeypatch.setattr("pooch.downloaders.doi_to_url", unreachable)
    with pytest.raises(OSError, match=r"download it by hand, and pass its folder"):
        fetch_us_flights_2008(data_home=tmp_path)


def test_the_real_flights_have_the_known_digest(data_directory):
    X, y = fetch_us_flights_2008(data_home=data_directory, order="file", return_X_y=True)
    assert X.shape == (2_055_733, 8)
    assert digest(np.column_stack([X, y]).astype(np.int16)) == KNOWN_DIGEST


def test_the_real_flights_by_aircraft_have_the_order_of_the_literature(data_directory):
    table = pyarrow.parquet.read_table(data_directory / "us_flights_2008_jan_apr.parquet")
    y = fetch_us_flights_2008(data_home=data_directory, return_X_y=True)[1]
    np.testing.assert_array_equal(y, table["arr_delay"].to_numpy())
