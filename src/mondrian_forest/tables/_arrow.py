"""Imports pyarrow, or says what to install."""

try:
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "Tables need pyarrow: pip install 'mondrian-forest[cli]'.", name="pyarrow"
    ) from None

__all__ = ["pyarrow"]
