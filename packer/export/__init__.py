"""What goes out to other trainers: a cache's documents or blocks in the files they read, masks included or refused.

source          documents and blocks in order, digests compared, as flat arrays
writer          what the writer of a format is given, and its files with their digests
place           the folder they are written into, one writer at a time
datasets_folder Hugging Face datasets, as save_to_disk writes them: TRL, axolotl, LLaMA-Factory
megatron        .bin and .idx of Megatron-LM
olmo            token and mask arrays of OLMo-core
mds             shards of MosaicML streaming, as llm-foundry's finetuning takes them
run             all of it: refusals, the folder, export.json
"""

from packer.export.run import Exported, export
from packer.export.writer import FORMS, Form, Unit

__all__ = ["FORMS", "Exported", "Form", "Unit", "export"]
