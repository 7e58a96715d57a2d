"""What packer knows as pages for people, in one file or served on this machine.

A cache with its facts, plots and the tokens of a sample; the lines of other reports; and the card of a cache that is
pushed to the Hub.
"""

from packer.report.items import Chosen
from packer.report.pages import Report, report, text_page
from packer.report.push import Pushed, push
from packer.report.server import PageServer
from packer.report.shell import check_place, write_page

__all__ = [
    "Chosen",
    "PageServer",
    "Pushed",
    "Report",
    "check_place",
    "push",
    "report",
    "text_page",
    "write_page",
]
