"""Tables in files, with dates, text and missing values, as input for forests."""

from .encoding import TableEncoder
from .errors import TableError
from .files import TableFile
from .model import TableForest
from .writer import TableWriter

__all__ = ["TableEncoder", "TableError", "TableFile", "TableForest", "TableWriter"]
