"""What packer knows as pages for people, in one file or served on this machine.

A cache with its facts, plots and the tokens of a sample; the reports of `diff` and `lint`; and the card of a cache that
is pushed to the Hub.
"""

from packer.report.items import Chosen
from packer.report.pages import Report, diff_page, lint_page, report
from packer.report.push import Pushed, push
from packer.report.server import PageServer
from packer.report.shell import check_place, write_page

__all__ = [
    "Chosen",
    "PageServer",
    "Pushed",
    "Report",
    "check_place",
    "diff_page",
    "lint_page",
    "push",
    "report",
    "write_page",
]
