"""Looking at training rows that another tool prepared: ids with labels or masks, and what is wrong with them.

codes           kinds of finding
dataset         rows as flat arrays, and what a reader of a form gives
tables          rows of Arrow and Parquet files
arrow           those with input_ids: save_to_disk folders of Hugging Face datasets (TRL, axolotl, LLaMA-Factory), files
mds, mds_values shards of MosaicML streaming, and what their columns say
megatron        .bin and .idx of Megatron-LM
olmo            token and mask arrays of OLMo-core and others
opened          which of them a path is
known           what the tokenizer and its template say: stop ids, BOS, the header of an answer
places          which tokens are prompt, header, answer; where sequences begin; what is padding
checks          each check, over flat arrays
excerpts        the text a finding is about
report          all of it over a sample of rows, or over all of them
"""

from packer.audit.foreign.codes import CODES
from packer.audit.foreign.report import ForeignFinding, ForeignReport, NotLookedAt, look_at
from packer.audit.foreign.view import ForeignRow, view_foreign_row

__all__ = ["CODES", "ForeignFinding", "ForeignReport", "ForeignRow", "NotLookedAt", "look_at", "view_foreign_row"]
