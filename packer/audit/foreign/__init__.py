"""Training rows that another tool prepared, ids with labels or masks: what training on them would teach."""

from packer.audit.foreign.foreign_codes import CODES
from packer.audit.foreign.foreign_report import ForeignFinding, ForeignReport, NotLookedAt, look_at
from packer.audit.foreign.foreign_row import ForeignRow, view_foreign_row

__all__ = ["CODES", "ForeignFinding", "ForeignReport", "ForeignRow", "NotLookedAt", "look_at", "view_foreign_row"]
