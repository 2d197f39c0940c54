"""Tables of the scores, the ranks, the ablation, and the targets with yes or no."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.stats import gmean, rankdata

from ..table import Table
from .methods import PLAIN, POINT, Method
from .scores import LEAST_STD, LEAST_TAIL
from .trials import Scores

ABSENT = "-"
BASE = "RandomForest"
BUDGET = {"fit_seconds": "fit, times", "predict_seconds": "prediction, times"}
TIMED = "Mondrian-pruned + chosen cuts"
"""Trees alone: the default also learns weights and a spread, which take a time of their own."""
RANKED = {"nlpd": "NLPD", "crps": "CRPS", "rmse": "RMSE", "coverage_error": "coverage error"}
TITLES = {
    "rmse": (
        "RMSE",
        "Means over the splits. All scores are in standard deviations of the training labels. The "
        "point prediction is the mean of the predictive distribution: for forests the mean over "
        "trees, for quantile-forest and LightGBM the mean of the distribution through their "
        "quantiles.",
    ),
    "nlpd": (
        "NLPD",
        "Negative log predictive density. RandomForest and ExtraTrees predict a Gaussian with the "
        "mean and variance of the trees, as in the paper. quantile-forest and LightGBM have a "
        "quantile function that is linear between 19 levels, with exponential tails through the "
        f"median and the outermost quantile, of a scale of at least {LEAST_TAIL}. No density "
        "counts for more than one over the rounding step of the labels (the median difference "
        "between neighbouring values), or than that of a Gaussian with standard deviation "
        f"{LEAST_STD}: narrower Gaussians and tied quantiles are widened to it. The other scores "
        "do without this widening.",
    ),
    "crps": ("CRPS", "Continuous ranked probability score, exact for these distributions."),
    "coverage_error": (
        "Worst coverage error",
        "The largest difference, over central intervals of 10% to 90% and 95%, between the level "
        "and the share of labels inside. With n test rows, a perfect forecast has about "
        "0.69 / sqrt(n): 0.07 for the 101 rows of housing.",
    ),
    "rounded_coverage_error": (
        "Worst coverage error of rounded labels",
        "The same, but each label is replaced by a random value within half a rounding step: the "
        "randomised PIT of Czado, Gneiting and Held (2009). A label with few distinct values lies "
        "in the middle of every confident forecast, so that in the table above confidence counts "
        "as an error.",
    ),
    "fit_seconds": (
        "Fit time, seconds",
        "Cached times are from the day of their run: compare only methods that ran together on a "
        "quiet machine.",
    ),
    "predict_seconds": (
        "Prediction time, seconds",
        "The time to predict the distributions of all test rows, without the scores.",
    ),
}


def report(
    results: Scores, head: str | None, peers: list[Method], variants: list[Method]
) -> Iterator[Table]:
    """Yield the tables. ``head`` is the one of ours that is ranked, the variants are others."""
    names = [*([head] if head else []), *(peer.name for peer in peers)]
    names = [name for name in names if any(name in found for found in results.values())]
    for score in TITLES:
        yield score_table(results, score, names)
    ranked = [*([head] if head else []), *(peer.name for peer in peers if peer.is_ranked)]
    if len(ranked) > 1:
        yield rank_table(results, ranked)
    rivals = [peer.name for peer in peers if peer.is_ranked]
    if variants:
        yield ablation_table(results, head, rivals, variants)
    if head:
        yield target_table(results, head, rivals)


def score_table(results: Scores, score: str, names: list[str]) -> Table:
    title, note = TITLES[score]
    table = Table(title, ["data", *names], note=note)
    for data, found in results.items():
        table.add(data, *(found[name][score] if name in found else ABSENT for name in names))
    if score.endswith("seconds") and "RandomForest" in names:
        ratios = [ratio(results, name, "RandomForest", score) for name in names]
        means = [float(gmean(one)) if len(one) else ABSENT for one in ratios]
        table.add("geometric mean of the ratio to RandomForest", *means)
    return table


def ratio(results: Scores, name: str, other: str, score: str) -> np.ndarray:
    """Return the ratios on the tables that both have seen."""
    both = [found for found in results.values() if name in found and other in found]
    return np.array([found[name][score] / found[other][score] for found in both])


def mean_ranks(results: Scores, score: str, names: list[str]) -> dict[str, float]:
    values = [[found[name][score] for name in names] for found in results.values()]
    return dict(zip(names, rankdata(values, axis=1).mean(axis=0).tolist(), strict=True))


def rank_table(results: Scores, names: list[str]) -> Table:
    budget = BUDGET if BASE in names else {}
    table = Table(
        "Mean ranks",
        ["method", *RANKED.values(), *budget.values()],
        note=f"Over {len(results)} tables, by the mean over the splits. 1 is best, and ties share "
        f"their ranks. GP has no rank, because it runs on small tables only; {POINT} has none, "
        f"because it predicts no distribution. Times are those of {BASE}, geometric means.",
    )
    ranks = {score: mean_ranks(results, score, names) for score in RANKED}
    for name in sorted(names, key=lambda name: ranks["crps"][name]):
        times = [float(gmean(ratio(results, name, BASE, score))) for score in budget]
        table.add(name, *(ranks[score][name] for score in RANKED), *times)
    return table


def ablation_table(
    results: Scores, head: str | None, rivals: list[str], variants: list[Method]
) -> Table:
    settings = {variant.name: variant.settings for variant in variants}
    names = [*([head] if head else []), *settings]
    summaries = {name: summary(results, name, rivals) for name in names}
    table = Table(
        "Ablation",
        ["variant", "settings", *summaries[names[0]]],
        note="Means over the tables. Each variant is ranked among the other packages. Ratios are "
        "geometric means.",
    )
    for name in names:
        text = ", ".join(f"{key}={value!r}" for key, value in settings.get(name, {}).items())
        table.add(name, text or "default", *summaries[name].values())
    return table


def summary(results: Scores, name: str, rivals: list[str]) -> dict[str, float]:
    """Return the columns of one variant; comparisons only with rivals that ran."""
    columns = {
        title: float(np.mean([found[name][score] for found in results.values()]))
        for score, title in RANKED.items()
    }
    if rivals:
        for score in ("nlpd", "crps"):
            ranks = mean_ranks(results, score, [name, *rivals])
            columns[f"rank in {RANKED[score]}"] = ranks[name]
    if "ExtraTrees" in rivals:
        columns["RMSE / ExtraTrees"] = float(gmean(ratio(results, name, "ExtraTrees", "rmse")))
    if "RandomForest" in rivals:
        times = ratio(results, name, "RandomForest", "fit_seconds")
        columns["fit time / RandomForest"] = float(gmean(times))
    return columns


def target_table(results: Scores, head: str, rivals: list[str]) -> Table:
    table = Table("Targets", ["target", "found", "met"], note=f"For {head}.")
    for target, found, is_met in targets(results, head, rivals):
        table.add(target, found, "yes" if is_met else "no")
    return table


def targets(results: Scores, head: str, rivals: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield target, what was found, and whether it is met; none for a rival that did not run."""
    if rivals:
        for score in ("nlpd", "crps"):
            ranks = mean_ranks(results, score, [head, *rivals])
            best = min(rivals, key=ranks.__getitem__)
            yield (
                f"first by mean rank in {RANKED[score]}",
                f"{ranks[head]:.2f}; of the others {best} is best, {ranks[best]:.2f}",
                ranks[head] < ranks[best],
            )
    if rivals:
        best_crps = [min(found[name]["crps"] for name in rivals) for found in results.values()]
        own = [found[head]["crps"] for found in results.values()]
        mean = float(gmean(np.divide(own, best_crps)))
        target = "CRPS / that of the best other of each table at most 1 in geometric mean"
        yield target, f"{mean:.3f}", mean <= 1.0
    if all(POINT in found for found in results.values()):
        mean = float(gmean(ratio(results, head, POINT, "rmse")))
        yield f"RMSE / {POINT} at most 0.97 in geometric mean", f"{mean:.3f}", mean <= 0.97
    if "ExtraTrees" in rivals:
        ratios = ratio(results, head, "ExtraTrees", "rmse")
        mean, worst = float(gmean(ratios)), float(ratios.max())
        yield "RMSE / ExtraTrees at most 1 in geometric mean", f"{mean:.3f}", mean <= 1.0
        where = list(results)[int(ratios.argmax())]
        yield "RMSE / ExtraTrees at most 1.1 on each table", f"{worst:.3f}, {where}", worst <= 1.1
    for score, what in (("coverage_error", ""), ("rounded_coverage_error", " of rounded labels")):
        error = float(np.mean([found[head][score] for found in results.values()]))
        target = f"worst coverage error{what} at most 0.045 on average"
        yield target, f"{error:.4f}", error <= 0.045
    if all(PLAIN in found for found in results.values()):
        ratios = ratio(results, head, PLAIN, "crps")
        worst, where = float(ratios.max()), list(results)[int(ratios.argmax())]
        target = "CRPS / that without a mean function at most 1.02 on each table"
        yield target, f"{worst:.3f}, {where}; geometric mean {gmean(ratios):.3f}", worst <= 1.02
        mean = float(gmean(ratio(results, head, PLAIN, "fit_seconds")))
        yield "fit / that without a mean function at most 3 times", f"{mean:.2f}", mean <= 3.0
    if "RandomForest" in rivals and all(TIMED in found for found in results.values()):
        times = 1.0 / gmean(ratio(results, TIMED, "RandomForest", "fit_seconds"))
        processor = 1.0 / gmean(ratio(results, TIMED, "RandomForest", "fit_processor_seconds"))
        yield (
            f"fit of {TIMED} at least 3 times as fast as RandomForest, in geometric mean",
            f"{times:.2f}; in processor time {processor:.2f}",
            bool(times >= 3.0),
        )
