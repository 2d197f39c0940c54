"""Speed, memory and quality, measured against peers in one run; see ``python -m benchmarks -h``."""
