"""A cache as a page for people: facts, plots and the tokens of a sample, in one file or served on this machine."""

from packer.report.items import Chosen
from packer.report.one_file import Report, report
from packer.report.server import PageServer

__all__ = ["Chosen", "PageServer", "Report", "report"]
