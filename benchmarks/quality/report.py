"""Tables of the scores, the ranks, the ablation, and the targets with yes or no."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.stats import gmean, rankdata

from ..table import Table
from .methods import Method
from .scores import LEAST_STD, LEAST_TAIL
from .trials import Scores

ABSENT = "-"
TIMED = "Mondrian-pruned + chosen cuts"
"""Trees alone: the default also learns weights and a spread, which take a time of their own."""
RANKED = {"nlpd": "NLPD", "crps": "CRPS", "rmse": "RMSE", "coverage_error": "coverage error"}
TITLES = {
    "rmse": (
        "RMSE",
        "Means over the splits, in standard deviations of the training labels, as all scores. "
        "The point prediction is the mean of the predictive distribution: of the forests the mean "
        "over trees, of quantile-forest and LightGBM that of the distribution through their "
        "quantiles.",
    ),
    "nlpd": (
        "NLPD",
        "Negative log predictive density. RandomForest and ExtraTrees: Gaussian with the mean and "
        "variance of the trees, as in the paper. Nobody's density counts for more than one over "
        "the rounding step of the labels (their median gap), or than that of a Gaussian with "
        f"standard deviation {LEAST_STD}; narrower Gaussians and tied quantiles are widened to it. "
        "quantile-forest and LightGBM: quantile function linear between 19 levels, exponential "
        "tails through the median and the outermost quantile, of a scale of at least "
        f"{LEAST_TAIL}. None of this widening is in the other scores.",
    ),
    "crps": ("CRPS", "Continuous ranked probability score, exact for these distributions."),
    "coverage_error": (
        "Worst coverage error",
        "Largest difference, over central intervals of 10% to 90% and 95%, between the level and "
        "the share of labels inside. Of n test rows, a perfect forecast has about 0.69 / sqrt(n): "
        "0.07 for the 101 of housing.",
    ),
    "rounded_coverage_error": (
        "Worst coverage error of rounded labels",
        "The same where a label counts as anything within half a rounding step (the median gap), "
        "drawn at random: the randomised PIT of Czado, Gneiting and Held (2009). A label that "
        "takes a few values only lies in the middle of every forecast that is sure of it, so that "
        "being sure counts as an error above.",
    ),
    "fit_seconds": (
        "Fit time, seconds",
        "Times from the cache are of the day of that run: compare only what ran together on a "
        "quiet machine.",
    ),
    "predict_seconds": (
        "Prediction time, seconds",
        "Of the distributions of all test rows; scores are not in it.",
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
    table = Table(
        "Mean ranks",
        ["method", *RANKED.values()],
        note=f"Over {len(results)} tables, by the mean over the splits; 1 is best, ties share "
        "their ranks. GP has no rank: it runs on small tables only.",
    )
    ranks = {score: mean_ranks(results, score, names) for score in RANKED}
    for name in sorted(names, key=lambda name: ranks["nlpd"][name]):
        table.add(name, *(ranks[score][name] for score in RANKED))
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
        note="Means over the tables. Ranks are among the variant and the other packages. Ratios "
        "are geometric means.",
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
    table = Table("Targets", ["target", "found", "met"], note=f"Of {head}.")
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
    if "ExtraTrees" in rivals:
        ratios = ratio(results, head, "ExtraTrees", "rmse")
        mean, worst = float(gmean(ratios)), float(ratios.max())
        yield "RMSE / ExtraTrees at most 1 in geometric mean", f"{mean:.3f}", mean <= 1.0
        where = list(results)[int(ratios.argmax())]
        yield "RMSE / ExtraTrees at most 1.1 on each table", f"{worst:.3f}, {where}", worst <= 1.1
    for score, what in (("coverage_error", ""), ("rounded_coverage_error", " of rounded labels")):
        error = float(np.mean([found[head][score] for found in results.values()]))
        target = f"worst coverage error{what} at most 0.05 on average"
        yield target, f"{error:.3f}", error <= 0.05
    if "RandomForest" in rivals and all(TIMED in found for found in results.values()):
        times = 1.0 / gmean(ratio(results, TIMED, "RandomForest", "fit_seconds"))
        processor = 1.0 / gmean(ratio(results, TIMED, "RandomForest", "fit_processor_seconds"))
        yield (
            f"fit of {TIMED} at least 3 times as fast as RandomForest, in geometric mean",
            f"{times:.2f}; in processor time {processor:.2f}",
            bool(times >= 3.0),
        )
