"""Tables as people have them: files with dates, text and missing values, for forests."""

from .encode import TableEncoder
from .files import TableFile, TableWriter
from .model import TableForest
from .texts import TableError

__all__ = ["TableEncoder", "TableError", "TableFile", "TableForest", "TableWriter"]
