from reproduction.report import command

from .run import run

command("table_3", run)
