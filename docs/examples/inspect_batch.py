"""Look at a batch from Python: which documents it holds, and what each of them trains.

Run it in an empty folder. It needs torch.
"""

from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

import packer
from packer import PackedLoader
from packer.starter import write_starter

write_starter(Path("first"))  # as `packer init first`
packer.build("first/recipe.yaml", "cache")

tokenizer = Tokenizer.from_file("first/tokenizer/tokenizer.json")
loader = PackedLoader("cache", micro_batch_size=2, global_batch_size=2)
step = next(iter(loader))
(micro_batch,) = step

for name, value in micro_batch.items():
    print(f"{name:16}", list(value.shape) if hasattr(value, "shape") else value)

# A flattened micro-batch is one row; cu_seq_lens_q holds where its sequences begin and end.
ids, labels = micro_batch["input_ids"][0], micro_batch["labels"][0]
bounds = micro_batch["cu_seq_lens_q"].tolist()
num_trained = 0
for start, end in pairwise(bounds):
    trained = labels[start:end] != -100
    num_trained += int(trained.sum())
    if trained.any():  # the last sequence of a block may be padding
        answer = tokenizer.decode(ids[start:end][trained].tolist(), skip_special_tokens=False)
        print(f"slots {start} to {end}, {int(trained.sum())} trained: {answer[:60]!r}")
        assert not trained[0], "the first token of a document is never a target"

assert num_trained == step.num_items_in_batch
