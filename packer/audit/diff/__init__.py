"""Why two caches differ, from their identity down to tokens.

report       what there is to say
multisets    rows of integers that two lists have in common
recipe       rules, places and software
inputs       which input is which, and what became of it
model        template, vocabulary, added tokens, settings
documents    documents by identity, and the rows of those that differ
tokens       two documents token by token
examples     rows shown
blocks       pieces and blocks
numbers      totals, rejections, lengths
meaning      the fingerprints in a sentence
compare      all of these together
"""

from packer.audit.diff.compare import diff
from packer.audit.diff.report import CacheDiff

__all__ = ["CacheDiff", "diff"]
