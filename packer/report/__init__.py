"""HTML reports, written to one file: a cache's facts, plots and the tokens of a sample of documents."""

from packer.report.pages import Report, report

__all__ = ["Report", "report"]
