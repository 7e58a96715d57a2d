"""Audit of training rows that another tool prepared (ids with labels or masks): what a model would learn from them."""

from packer.audit.foreign.foreign_report import audit_foreign
from packer.audit.foreign.rows import CODES

__all__ = ["CODES", "audit_foreign"]
