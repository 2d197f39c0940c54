"""Tables as people have them: files with dates, text and gaps, and forests that learn from them."""

from .encode import TableEncoder
from .files import TableError, TableFile, TableWriter
from .model import TableForest

__all__ = ["TableEncoder", "TableError", "TableFile", "TableForest", "TableWriter"]
