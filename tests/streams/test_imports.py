import subprocess
import sys

import pytest

import mondrian_forest.streams

WITHOUT_RIVER = """
import sys
sys.modules["river"] = sys.modules["river.base"] = None
from mondrian_forest.streams import Prequential, prequential
from mondrian_forest.streams import RiverForest
"""


def test_without_river_only_its_forest_is_missing_and_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT_RIVER], capture_output=True, text=True)
    assert "line 5, in <module>" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("RiverForest needs river: pip install river.")


def test_all_names_are_there():
    for name in mondrian_forest.streams.__all__:
        assert getattr(mondrian_forest.streams, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mondrian_forest.streams.nonsense  # noqa: B018
