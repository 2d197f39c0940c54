"""Data to try things on."""

from .generators import make_gap_wave

__all__ = ["make_gap_wave"]
