import html.parser
import json
import os
import re
import shutil
import subprocess

import pytest

from command import refuse_here, succeed_here

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
