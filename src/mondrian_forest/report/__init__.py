"""A report on how well a model predicts: one HTML file that needs no other file."""

from .page import report

__all__ = ["report"]
