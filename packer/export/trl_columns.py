"""The columns that TRL's DPO and KTO trainers give their own rows once they are tokenized, as a folder of datasets.

Pairs: ``prompt_ids``, ``chosen_ids``, ``rejected_ids``. Rated answers: ``prompt_ids``, ``completion_ids``, ``label``.
These trainers learn every token after the prompt. So answers of which some tokens are masked, as the user's in an
answer of several turns, are refused; ``--to datasets`` has a label for each token.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from packer.errors import UsageError
from packer.export.datasets_folder import DatasetFolder, pieces, prompt_lengths
from packer.export.writer import FlatDocuments, SplitRows


class TrlWriter(DatasetFolder):
    """One split of preference data."""

    name = "trl"

    @classmethod
    def refuse(cls, rows: Sequence[SplitRows]) -> None:
        super().refuse(rows)
        for each in rows:
            documents = each.cache.documents(each.split)
            offsets, _, ends = documents.runs()
            whole = np.diff(offsets) == 1
            whole &= ends[offsets[1:] - 1] == documents.lengths()
            if not whole.all():
                raise UsageError(
                    f"{int(np.count_nonzero(~whole)):,} of {len(documents):,} answers of split '{each.split}' have "
                    "masked tokens after their prompt, and TRL would learn them",
                    hint="--to datasets has labels; packer.load.trainers.PackedDPOTrainer reads the cache's own",
                )

    def columns(self) -> dict[str, pa.DataType]:
        ids = pa.list_(pa.int32())
        if self.rows.is_paired:
            return {"prompt_ids": ids, "chosen_ids": ids, "rejected_ids": ids, **self.margin_column()}
        return {"prompt_ids": ids, "completion_ids": ids, "label": pa.bool_()}

    def documents(self, batch: FlatDocuments) -> None:
        starts, lengths = batch.offsets[:-1], batch.length
        prompts = prompt_lengths(batch)
        answers = {"chosen_ids": slice(0, None, 2), "rejected_ids": slice(1, None, 2)}
        if not self.rows.is_paired:
            answers = {"completion_ids": slice(None)}
        firsts = slice(0, None, len(answers))
        columns = {"prompt_ids": pieces(batch.input_ids, starts[firsts], prompts[firsts])}
        for name, own in answers.items():
            columns[name] = pieces(batch.input_ids, (starts + prompts)[own], (lengths - prompts)[own])
        self.append(columns | self.of_rows(batch))

    def notes(self) -> Iterator[str]:
        yield "TRL's trainers prepare such rows again, and fail, unless _prepare_dataset returns its input"
