"""Training rows that another tool prepared, ids with labels or masks: what training on them would teach."""

from packer.audit.foreign.foreign_report import audit_foreign, view_foreign_row
from packer.audit.foreign.row_checks import CODES

__all__ = ["CODES", "audit_foreign", "view_foreign_row"]
