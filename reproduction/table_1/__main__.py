from reproduction.report import command

from .run import run

command("table_1", run)
