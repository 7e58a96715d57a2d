"""HTML reports, written to one file or served locally.

They show a cache's facts, plots and the tokens of a sample of documents, or the text of another report.
"""

from packer.report.items import ReportContents
from packer.report.pages import Report, report, text_page
from packer.report.server import PageServer
from packer.report.shell import check_place, write_page

__all__ = [
    "PageServer",
    "Report",
    "ReportContents",
    "check_place",
    "report",
    "text_page",
    "write_page",
]
