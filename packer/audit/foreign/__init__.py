"""Audit of training rows that another tool prepared (ids with labels or masks): what a model would learn from them."""

from packer.audit.foreign.foreign_report import audit_foreign, view_foreign_row
from packer.audit.foreign.row_checks import CODES

__all__ = ["CODES", "audit_foreign", "view_foreign_row"]
