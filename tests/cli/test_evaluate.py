import html.parser
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from command import refuse_here, succeed_here
from houses import houses
from mondrian_forest.metrics import permutation_importance
from mondrian_forest.report import report as report_on
from mondrian_forest.tables import TableForest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def test_scores_are_printed_as_text_or_json(folder):
    text = succeed_here("evaluate", folder / "houses.mf", folder / "more.csv").stdout
    assert "coverage_90" in text
    done = succeed_here("evaluate", folder / "houses.mf", folder / "more.csv", "--json")
    found = json.loads(done.stdout)
    assert found["rows"] == found["rows evaluated"] == 100
    assert 15 < found["rmse"] < 80


def test_a_large_table_is_sampled(folder):
    arguments = folder / "houses.mf", folder / "more.parquet", "--most-rows", 40, "--json"
    found = json.loads(succeed_here("evaluate", *arguments).stdout)
    assert (found["rows"], found["rows evaluated"]) == (100, 40)


def test_tables_that_cannot_be_evaluated_are_refused(folder, tmp_path):
    (tmp_path / "t.csv").write_text("sold,town,area,garden\n" + "2020-01-01,Wien,30,true\n" * 2)
    assert "no column 'price'" in refuse_here("evaluate", folder / "houses.mf", tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("sold,town,area,garden,price\n2020-01-01,Wien,30,true,1\n")
    assert "too few rows" in refuse_here("evaluate", folder / "houses.mf", tmp_path / "t.csv")
    arguments = folder / "houses.mf", folder / "more.csv", "--report", tmp_path / "no" / "r.html"
    assert "cannot be saved" in refuse_here("evaluate", *arguments)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.pictures, self.outside = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "img":
            self.pictures.append(values)
        self.outside += [
            value
            for name, value in values.items()
            if name in ("src", "href") and not value.startswith("data:")
        ]


@pytest.fixture(scope="module")
def report(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    succeed_here("evaluate", folder / "houses.mf", folder / "more.csv", "--report", path)
    return path


def test_a_report_is_one_file_with_all_its_plots(report):
    text = report.read_text()
    page = Page(text)
    assert page.outside == []
    assert len(page.pictures) == 4
    assert all(picture["alt"] for picture in page.pictures)
    assert "<script" not in text
    assert "houses.mf on more.csv" in text
    assert os.listdir(report.parent) == ["report.html"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1000, 500], ids=["screen", "phone"])  # 500 is the least
def test_the_report_opens_in_a_browser(report, tmp_path, width):
    """All plots are loaded, nothing is wider than the window, and the console is empty."""
    probe = tmp_path / "probe.html"
    probe.write_text(
        report.read_text().replace(
            "</body>",
            """<pre id="probe"></pre><script>
            onload = () => { document.getElementById("probe").textContent = JSON.stringify({
              sizes: [...document.images].map(i => i.naturalWidth * i.complete),
              shown: [...document.images].map(i => i.getBoundingClientRect().width),
              wide: document.documentElement.scrollWidth, window: innerWidth }); };
            </script></body>""",
        )
    )
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
         "--virtual-time-budget=5000", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    found = json.loads(re.search(r'<pre id="probe">(\{.*?\})</pre>', done.stdout)[1])
    assert len(found["sizes"]) == 4
    assert min(found["sizes"]) > 300
    assert 200 < min(found["shown"]) <= max(found["shown"]) <= width
    assert found["wide"] <= found["window"]


@pytest.mark.parametrize("name", ["$x$", "$", r"$\frac{1}$", "a_$b^$", "\u65e5\u4ed8", "x" * 5000])
def test_a_report_can_show_any_column_name(name, write_table, small_fit, tmp_path):
    table, model = write_table(tmp_path / "t.csv", f"{name},b,{name}y"), tmp_path / "m.mf"
    succeed_here("fit", table, "-t", f"{name}y", *small_fit[2:], "-o", model)
    succeed_here("evaluate", model, table, "--report", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert text.count("data:image/png") == 4
    assert name[:20] in text


def importances_in(page):
    """Return the importances that a report shows, by feature, in the order of the report."""
    section = page.partition("<h2>Permutation importance")[2].partition("<img")[0]
    row = r'<tr><td>(.*?)</td><td>(.*?)</td>.*?class="bar" style="width:([\d.]+)rem'
    rows = re.findall(row, section)
    return {name: (float(rise), float(width)) for name, rise, width in rows}, section


def test_a_report_shows_how_much_worse_predictions_get_without_a_feature(folder):
    model = TableForest.load(folder / "houses.mf")
    table = houses(400, 1)
    shown, section = importances_in(report_on(model, table))
    expected = permutation_importance(
        model.forest, model.encoder.features(table), table["price"].to_numpy(),
        n_repeats=5, max_rows=300, random_state=0,
    ).importances_mean  # fmt: skip
    assert {name: rise for name, (rise, _) in shown.items()} == {
        name: float(f"{rise:.3g}")
        for name, rise in zip(model.encoder.feature_names, expected, strict=True)
    }
    rises, widths = np.array(list(shown.values())).T
    assert list(rises) == sorted(rises, reverse=True)
    np.testing.assert_allclose(widths, 12.0 * np.maximum(rises, 0.0) / rises[0], atol=0.1)
    assert set(list(shown)[:2]) == {"area", "town"}
    assert abs(shown["garden"][0]) < 0.03 * rises[0]  # prices do not depend on it
    assert (
        "in units of price: measured on 300 of the 400 rows. Shuffles of each feature: 5."
        in section
    )
    assert "Prediction along area" in report_on(model, table)


def test_of_a_wide_table_a_report_shuffles_fewer_rows():
    columns = {f"x{number}": np.random.default_rng(number).random(90) for number in range(150)}
    table = pa.table(columns | {"y": columns["x7"]})
    model = TableForest.fit(table, "y", n_estimators=2, n_candidate_splits=1, feature_weights=None)
    shown, section = importances_in(report_on(model, table))
    assert len(shown) == 20
    assert "measured on 66 of the 90 rows. Shuffles of each feature: 1." in section


def test_a_report_on_a_model_that_predicts_nothing_has_no_bars():
    random = np.random.default_rng(0)
    learned = {"a": random.random(60), "y": random.random(60)}
    model = TableForest.fit(pa.table(learned), "y", n_estimators=2)
    other = pa.table({"a": learned["a"], "y": 1.0 - learned["y"]})
    shown, _ = importances_in(report_on(model, other))
    assert shown["a"][0] < 0.0
    assert shown["a"][1] == 0.0


def strange_section(text):
    """Return the words of the section on strange rows, and its tables as lists of texts."""
    section = text.partition("<h2>Strange rows</h2>")[2].partition("<h2>")[0]
    tables = [
        [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
        for table in re.findall(r"<table>(.*?)</table>", section.replace("\n", ""))
    ]
    return section, tables


def with_far_rows(table, far):
    """Move some houses far away from the training data: they are huge, and sell for nothing."""
    area, price = (table[name].to_numpy().copy() for name in ("area", "price"))
    area[far] = 5000 + np.arange(len(far))
    price[far] = -9000.0
    for name, values in (("area", area), ("price", price)):
        table = table.set_column(table.column_names.index(name), name, [values])
    return table


def test_rows_that_were_shifted_far_away_are_strange(folder, tmp_path):
    far = [3, 50, 77]
    pa.csv.write_csv(with_far_rows(houses(100, 1), far), tmp_path / "t.csv")
    path = tmp_path / "r.html"
    succeed_here("evaluate", folder / "houses.mf", tmp_path / "t.csv", "--report", path)
    text, (compared, strangest) = strange_section(path.read_text())
    n_strange = int(re.search(r"Strange rows: (\d+) of 100", text)[1])
    assert 3 <= n_strange <= 10
    assert "By chance it would be about 1." in text
    assert [row[:2] for row in compared[1:]] == [
        ["strange rows", str(n_strange)],
        ["other rows", str(100 - n_strange)],
    ]
    assert float(compared[1][2]) > 5000.0 * np.sqrt(3.0 / n_strange)
    assert 15.0 < float(compared[2][2]) < 80.0
    assert strangest[0][2] == "price"
    assert len(strangest) == 11
    assert {row[0] for row in strangest[1:4]} == {str(row + 1) for row in far}
    for _, novelty, label, _, _, inside in strangest[1:4]:
        assert float(novelty) > 0.8
        assert (label, inside) == ("-9000", "no")
    assert all(float(row[1]) < 0.8 for row in strangest[4:])


def test_strange_rows_of_a_sample_have_their_numbers_in_the_table(folder, tmp_path):
    table = with_far_rows(houses(100, 1), np.arange(50, 100))
    table = table.set_column(5, "price", [1000.0 + np.arange(1, 101)])
    pa.csv.write_csv(table, tmp_path / "t.csv")
    arguments = folder / "houses.mf", tmp_path / "t.csv", "--most-rows", 40
    succeed_here("evaluate", *arguments, "--report", tmp_path / "r.html")
    _, (_, strangest) = strange_section((tmp_path / "r.html").read_text())
    assert len(strangest) == 11
    for number, _, label, *_ in strangest[1:]:
        assert 50 < int(number) <= 100
        assert int(label) == 1000 + int(number)


def test_the_numbers_about_strange_rows_are_those_of_the_model(folder):
    model = TableForest.load(folder / "houses.mf")
    table = with_far_rows(houses(100, 1), np.arange(5))
    text, (compared, strangest) = strange_section(report_on(model, table))
    X, y = model.encoder.features(table), table["price"].to_numpy()
    novelty, prediction = model.forest.novelty(X), model.forest.predict_distribution(X)
    low, high = prediction.interval(0.9).T
    is_inside = (low <= y) & (y <= high)
    order = np.argsort(-novelty, kind="stable")[:10]
    assert strangest[1:] == [
        [
            str(row + 1), f"{novelty[row]:.3g}", f"{y[row]:.4g}", f"{prediction.mean()[row]:.4g}",
            f"{prediction.std()[row]:.4g}", "yes" if is_inside[row] else "no",
        ]
        for row in order
    ]  # fmt: skip
    is_strange = model.forest.novelty(X, rank=True) > 0.99
    assert f"Strange rows: {is_strange.sum()} of 100" in text
    for name, n_rows, rmse, std, coverage in compared[1:]:
        rows = is_strange if name == "strange rows" else ~is_strange
        error = (y - prediction.mean())[rows]
        assert n_rows == str(rows.sum())
        assert rmse == f"{np.sqrt(np.mean(error**2)):.4g}"
        assert std == f"{prediction.std()[rows].mean():.4g}"
        assert coverage == f"{is_inside[rows].mean():.1%}"


def test_without_held_out_rows_a_report_lists_the_strangest_rows_only(small_model, tmp_path):
    table = small_model.parent / "t.csv"
    succeed_here("evaluate", small_model, table, "--report", tmp_path / "r.html")
    text, tables = strange_section((tmp_path / "r.html").read_text())
    assert "No rows were held out" in text
    assert "By chance" not in text
    assert [len(rows) for rows in tables] == [11]
