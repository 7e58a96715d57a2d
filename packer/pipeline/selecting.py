"""Compute a cache's selection from the traits of all its rows, for a build or to verify an existing cache."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from packer.batches import InputRows, Int64, SelectedRows
from packer.curate import TraitRules
from packer.errors import NothingKeptError
from packer.layout import values_of
from packer.pipeline.identity import Provenance
from packer.recipe.row_rules import RowRules, named_rule
from packer.rejections import CODES, ROW_REASONS, rejection_hint
from packer.store.entries import Cut
from packer.store.manifest import Input, RowSelection, Shard, StoredTable
from packer.store.row_tables import Rejected, read_table, rows_of_documents, split_documents, write_selection
from packer.store.shards import DocumentShards


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Which documents of a cache are in which split, and which are in none: of the latter, without rules, none."""

    documents: Mapping[str, DocumentShards]
    record: RowSelection | None = None
    """The manifest's record of the selection; None if the recipe has no rules about rows."""

    left_out: "DroppedDocuments | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedDocuments:
    """Documents of rows that the rules leave out. D documents."""

    documents: DocumentShards
    row: Int64  # [D] row of each document, in the selection's numbering
    rows: SelectedRows
    rules: RowRules

    def cuts(self) -> dict[str, Cut]:
        """Sum what is left out for each code; codes without losses are omitted."""
        code, lengths = self.rows.reason[self.row], self.documents.stored("length", np.int32)
        trained = self.documents.num_trained()
        return {
            ROW_REASONS[number - 1]: Cut(
                documents=int((own := code == number).sum()),
                parts=int(own.sum()),
                tokens=int(lengths[own].sum(dtype=np.int64)),
                trained=int(trained[own].sum(dtype=np.int64)),
            )
            for number in np.unique(code).tolist()
        }

    def lines(self, inputs: Sequence[Input], shards: Sequence[Shard]) -> Iterator[tuple[int, int, Rejected]]:
        """Yield a line about each document, which names the rule, or the row it duplicates; with its input and row."""
        named_row, names, rows, documents = _named_rows(inputs, shards), self.rules.names, self.rows, self.documents
        verdicts = (column[self.row] for column in (rows.reason, rows.detail, rows.kept, rows.similarity))
        columns = (*documents.origins(), documents.doc_ids(), documents.stored("length", np.int32), *verdicts)
        for source, row, doc_id, length, number, rule, kept, similarity in values_of(*columns):
            code = ROW_REASONS[number - 1]
            reason = CODES[code]
            if rule >= 0:
                reason = f"{named_rule(names[rule])} does not let the row pass"
            elif kept >= 0 and code == "contaminated":
                reason += f": {self.rules.question(kept)}, {similarity:.0%} of it"
            elif kept >= 0:
                alike = f", {similarity:.3f} alike" if code in {"near_duplicate", "leaks"} else ""
                reason += f": {named_row(kept)}{alike}"
            of_document = {"document": doc_id, "start": 0, "tokens": length}
            yield source, row, Rejected(source=inputs[source].path, row=row, code=code, reason=reason, **of_document)


def _named_rows(inputs: Sequence[Input], shards: Sequence[Shard]) -> Callable[[int], str]:
    """Return a function that names a row of a selection by its input's path and its number there."""
    first_rows = np.cumsum([0, *(shard.num_input_rows for shard in shards)])

    def named(row: int) -> str:
        number = int(np.searchsorted(first_rows, row, side="right")) - 1
        shard = shards[number]
        assert shard.source is not None
        return f"{inputs[shard.source].path} row {shard.first_row + row - int(first_rows[number])}"

    return named


def select(folder: Path, wanted: Provenance, shards: Sequence[Shard], traits: Sequence[StoredTable]) -> Selected:
    """Decide by the rules about rows which documents are in which split, and store the selection.

    `traits` are tables for the rows of each document shard.
    """
    rules = wanted.recipe.row_rules
    rows = decide(folder, rules, wanted.inputs, shards, read_traits(folder, traits, rules))
    if not rows.splits:
        raise _nothing_left(rows, rules)
    row = rows_of_documents(folder, shards)
    dropped = np.flatnonzero(rows.reason[row] > 0)
    return Selected(
        documents=split_documents(folder, shards, rows),
        record=write_selection(folder, rows, traits),
        left_out=DroppedDocuments(
            documents=DocumentShards(folder, shards, chosen=dropped), row=row[dropped], rows=rows, rules=rules
        ),
    )


def _nothing_left(rows: SelectedRows, rules: RowRules) -> NothingKeptError:
    counts = np.bincount(rows.reason, minlength=len(ROW_REASONS) + 1)[1:]
    found = ", ".join(f"{count:,} × {code}" for code, count in zip(ROW_REASONS, counts.tolist(), strict=True) if count)
    by_rule = np.bincount(rows.detail[rows.detail >= 0], minlength=len(rules.names)).tolist()
    named = ", ".join(f"{named_rule(name)} {n:,}" for name, n in zip(rules.names, by_rule, strict=True) if n)
    code = ROW_REASONS[int(counts.argmax())]
    conditions = (*rules.filters, *(each for own in rules.where for each in own.values()))
    typed = '; to `in`, the text "1" and the number 1 are two values, and those of CSV are texts'
    loosen = "loosen them" + (typed if any(each.one_of for each in conditions) else "")
    return NothingKeptError(
        f"nothing kept: the rules leave out every row: {found}" + (f"; {named}" if named else ""),
        hint=loosen if code == "filtered" else rejection_hint(code),
    )


def read_traits(folder: Path, traits: Sequence[StoredTable], rules: RowRules) -> pa.Table:
    """Return the traits of all rows, in the order of the partitions."""
    from packer.curate.traits import trait_schema  # noqa: PLC0415 - not loaded by builds without rules

    schema = trait_schema(TraitRules.of(rules, 0))
    return pa.concat_tables([read_table(folder, each, schema) for each in traits])


def decide(
    folder: Path, rules: RowRules, inputs: Sequence[Input], shards: Sequence[Shard], traits: pa.Table
) -> SelectedRows:
    """Compute the selection of a cache from its traits and documents."""
    from packer.curate.select import select_rows  # noqa: PLC0415 - not loaded by builds without rules

    splits = tuple(dict.fromkeys(shard.split for shard in shards))
    numbers = [shard.num_input_rows for shard in shards]
    tokens = np.zeros(sum(numbers), np.int64)
    lengths = DocumentShards(folder, shards).stored("length", np.int32)
    np.maximum.at(tokens, rows_of_documents(folder, shards), lengths)
    parts = [0 if shard.source is None else inputs[shard.source].part or 0 for shard in shards]
    rows = InputRows(
        source=np.repeat(np.array(parts, np.int32), numbers),
        split=np.repeat(np.array([splits.index(shard.split) for shard in shards], np.int32), numbers),
        splits=splits,
        num_tokens=tokens,
    )
    return select_rows(rows, traits, rules)
