import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mondrian_forest
from mondrian_forest import PAPER, MondrianForestRegressor, PredictiveDistribution

SOURCE = Path(mondrian_forest.__file__).parent


def test_the_package_exports_what_it_says():
    for name in mondrian_forest.__all__:
        assert getattr(mondrian_forest, name) is not None
    assert set(dir(mondrian_forest)) == set(mondrian_forest.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mondrian_forest.nonsense  # noqa: B018


def test_few_parameters_are_for_everybody():
    text = inspect.getdoc(MondrianForestRegressor)
    names = inspect.signature(MondrianForestRegressor).parameters
    usual, _, rest = text.partition("Other Parameters\n")
    usual = re.findall(r"^(\w+) : ", usual, re.MULTILINE)
    other = re.findall(r"^(\w+) : ", rest.partition("Attributes\n")[0], re.MULTILINE)
    assert len(usual) < 12
    assert sorted([*usual, *other]) == sorted(names)


def test_the_constructor_takes_all_but_the_number_of_trees_by_name():
    parameters = inspect.signature(MondrianForestRegressor).parameters
    keyword_only = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert keyword_only == list(parameters)[1:]
    assert set(PAPER) < set(parameters)


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (MondrianForestRegressor, "fit predict predict_distribution predict_quantiles "
         "predict_interval score apply partial_fit forget freeze"),
        (PredictiveDistribution, "mean var std pdf logpdf cdf quantile interval sample crps "
         "decompose __len__ __getitem__"),
    ],
)  # fmt: skip
def test_the_designed_methods_exist_and_are_documented(owner, names):
    for name in names.split():
        method = getattr(owner, name)
        assert callable(method)
        assert name == "__len__" or inspect.getdoc(method)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, mondrian_forest; print({'numba', 'sklearn', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_only_public_names_of_scikit_learn_are_used():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                assert not any(name.startswith("_") for name in names), (path, names)
