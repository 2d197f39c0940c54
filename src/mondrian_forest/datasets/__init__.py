"""Data sets for examples, tests and the experiments of the paper."""

from .ep_messages import load_ep_messages
from .generators import make_gap_wave
from .nycflights import load_nycflights13
from .us_flights import fetch_us_flights_2008

__all__ = [
    "fetch_us_flights_2008",
    "load_ep_messages",
    "load_nycflights13",
    "make_gap_wave",
]
