"""One failure rate for all statistical tests together.

Each check compares its p-value with the same threshold, chosen so that a correct program fails any
of them with probability ``SUITE_FAILURE_RATE`` at most (Bonferroni). Seeds are fixed, so a run is
reproducible; the rate says how lucky a wrong program, or how unlucky a right one, must be.
"""

SUITE_FAILURE_RATE = 1e-3
MOST_CHECKS = 2000

_n_checks = 0


def assert_plausible(p_value, n_samples, fewest_samples=500):
    """Fail when the law is rejected, or when there are too few samples to reject anything."""
    global _n_checks
    _n_checks += 1
    assert _n_checks <= MOST_CHECKS, "more checks than the suite's failure rate allows for"
    assert n_samples >= fewest_samples, f"{n_samples} samples cannot decide"
    threshold = SUITE_FAILURE_RATE / MOST_CHECKS
    assert p_value > threshold, f"p-value {p_value:.2e} is below {threshold:.0e}"


def is_rejected(p_value):
    """Tell whether a p-value would fail the suite: for showing that a test has power."""
    return p_value <= SUITE_FAILURE_RATE / MOST_CHECKS
