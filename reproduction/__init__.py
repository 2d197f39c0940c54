"""The experiments of the paper, run again: one folder for each figure or table.

Only the public interface of ``mondrian_forest`` is used here. See README.md for the results.
"""
