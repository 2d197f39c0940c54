from reproduction.report import command

from .run import run

command("figure_2", run)
