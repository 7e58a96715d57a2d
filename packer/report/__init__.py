"""HTML reports, written to one file, and the cache card for pushing to the Hub.

A report shows a cache's facts, plots and the tokens of a sample of documents.
"""

from packer.report.items import ReportContents
from packer.report.pages import Report, report
from packer.report.push import Pushed, push

__all__ = [
    "Pushed",
    "Report",
    "ReportContents",
    "push",
    "report",
]
