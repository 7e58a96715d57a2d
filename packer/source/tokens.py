"""Schema `tokens`: a row that has token ids already, and says which of them are trained.

The field names are those that tools write: `labels` of Hugging Face collators, axolotl and LLaMA-Factory; `loss_mask`
of verl, slime and AReaL; `response_mask` of verl; `assistant_masks` of transformers; `completion_mask` of TRL;
`loss_weights` and `weights`, if all of them are 0 or 1. slime's mask covers the response only, whose length is
`response_length`. If a row has several of them, a token is trained only if all say so. TRL combines masks in this way,
but uses labels alone if there are any. A field `mask` is ignored: in torchtune it is true for tokens that are *not*
trained.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, PretokenizedTokens, Sample
from packer.source.decode import Refused, typed
from packer.source.row import RowSchema, sample_id

MASKS = ("loss_mask", "assistant_masks", "completion_mask", "response_mask", "loss_weights", "weights")
LABEL_FIELDS = ("labels", *MASKS)
"""Fields that say what is trained; a row has at least one of them."""

_MASKED = -100
_MAX_ID = np.iinfo(np.int32).max

_Flags: TypeAlias = list[int | float | bool] | None


class TokensRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are read; every list has one entry per token, except `seq_lengths`."""

    input_ids: list[int]
    labels: list[int] | None = None
    loss_mask: _Flags = None
    assistant_masks: _Flags = None
    completion_mask: _Flags = None
    response_mask: _Flags = None
    loss_weights: _Flags = None
    weights: _Flags = None
    attention_mask: _Flags = None
    position_ids: list[int] | None = None
    seq_lengths: list[int] | None = None
    response_length: int | None = None
    """Number of tokens in the response, which ends `input_ids`; a mask may cover the response only."""


_FLAGS = (*MASKS, "attention_mask")
_LISTS = tuple(name for name in TokensRow.__struct_fields__ if name != "response_length")


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"input_ids": […], "labels": […]}``, or with a mask in place of labels."""
    given = {name: row[name] for name in TokensRow.__struct_fields__ if name in row}
    lists = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    shape = typed(lists, TokensRow)
    fields = _arrays(shape)
    ids = fields["input_ids"]
    if not len(ids):
        raise Refused("empty", "`input_ids` is empty")
    if len(lengths := fields.pop("seq_lengths", ())) > 1:
        raise Refused("already_packed", f"`seq_lengths` names {len(lengths)} documents")
    _pad_response_masks(fields, shape.response_length)
    for name, values in fields.items():
        if len(values) != len(ids):
            raise Refused("lengths_differ", f"`{name}` has {len(values)} entries, but `input_ids` has {len(ids)}")
    kept = _unpadded_range(fields)
    positions = fields.get("position_ids", np.arange(len(ids)))[kept]
    if len(restarts := np.flatnonzero(np.diff(positions) != 1)):
        at = kept.start + restarts[0] + 1
        raise Refused("already_packed", f"`position_ids` do not run on at token {at}: several documents")
    if ids[kept].min() < 0:
        at = kept.start + int(np.argmin(ids[kept]))
        raise Refused("unknown_token", f"input_ids[{at}] is {ids[at]}; ids are not negative")
    if "labels" in fields:
        _refuse_other_labels(ids, fields["labels"])
    pretokenized = PretokenizedTokens(
        input_ids=np.minimum(ids[kept], _MAX_ID).astype(np.int32),
        trained=_trained(fields)[kept],
        by_labels="labels" in fields,
        num_padding=kept.start,
        num_given=len(ids),
    )
    return Sample(kind="tokens", row=number, pretokenized=pretokenized, sample_id=sample_id(row))


def _arrays(row: TokensRow) -> dict[str, npt.NDArray[Any]]:
    """Return the fields that the row has.  # int64[N], masks float64[N]"""
    arrays = {}
    for name in (name for name in _LISTS if getattr(row, name) is not None):
        try:
            arrays[name] = np.array(getattr(row, name), np.float64 if name in _FLAGS else np.int64)
        except OverflowError:
            raise Refused("wrong_type", f"a number is out of range at $.{name}") from None
    return arrays


def _pad_response_masks(fields: dict[str, npt.NDArray[Any]], response_length: int | None) -> None:
    """Prepend zeros for the prompt to masks that cover the response only."""
    num_prompt = len(fields["input_ids"]) - (response_length or 0)
    for name in MASKS:
        if name in fields and len(fields[name]) == response_length and num_prompt > 0:
            fields[name] = np.concatenate([np.zeros(num_prompt), fields[name]])


def _refuse_other_labels(ids: Int64, labels: Int64) -> None:
    """Check that every label is -100 or the id at the same position."""
    trained = labels != _MASKED
    wrong = np.flatnonzero(trained & (labels != ids))
    if not len(wrong):
        return
    shifted = trained[:-1]
    if shifted.any() and np.array_equal(labels[:-1][shifted], ids[1:][shifted]):
        raise Refused(
            "labels_shifted",
            "labels[t] is input_ids[t + 1]; expected labels that are not shifted: labels[t] is input_ids[t]",
        )
    at = int(wrong[0])
    raise Refused("labels_differ", f"labels[{at}] is {labels[at]}, but input_ids[{at}] is {ids[at]}")


def _trained(fields: Mapping[str, npt.NDArray[Any]]) -> Bool:
    """Return whether each token is trained.  # bool[N]"""
    trained: Bool = np.ones(len(fields["input_ids"]), np.bool_)
    if "labels" in fields:
        trained &= fields["labels"] != _MASKED
    for name in MASKS:
        if name in fields:
            trained &= _checked_mask(fields, name)
    return trained


def _checked_mask(fields: Mapping[str, npt.NDArray[Any]], name: str) -> Bool:
    values = fields[name]
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise Refused("bad_mask", f"{name}[{wrong[0]}] is {values[wrong[0]]:g}; expected 0 or 1")
    flags: Bool = values == 1
    return flags


def _unpadded_range(fields: Mapping[str, npt.NDArray[Any]]) -> slice:
    """Return the range of tokens that the attention mask does not mark as padding, which may precede or follow them."""
    if "attention_mask" not in fields:
        return slice(0, len(fields["input_ids"]))
    if fields["attention_mask"].max() > 1:
        raise Refused("already_packed", "`attention_mask` numbers several documents")
    real = np.flatnonzero(_checked_mask(fields, "attention_mask"))
    if not len(real):
        raise Refused("empty", "`attention_mask` calls all tokens padding")
    kept = slice(int(real[0]), int(real[-1]) + 1)
    if kept.stop - kept.start != len(real):
        raise Refused("bad_mask", "`attention_mask` is 0 between tokens; padding belongs before or after them")
    return kept


SCHEMA = RowSchema(
    needs=(("input_ids",), LABEL_FIELDS),
    rows=(TokensRow,),
    read=read,
    help="`input_ids`, and what is trained of them: `labels` (unshifted, -100 elsewhere), a mask of 0 and 1 "
    "(`loss_mask`, `assistant_masks`, `completion_mask`, `response_mask`, `loss_weights`, `weights`); "
    "`attention_mask`, `id`",
    json_fields=TokensRow.__struct_fields__,
)
