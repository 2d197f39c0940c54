from reproduction.report import command

from .run import run

command("table_2", run)
