"""Rows that bring their tokens as documents: against the literal meaning, token by token."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from token_rows import runs_of

from packer.batches import Sample
from packer.layout import document_labels
from packer.model.model import load_model
from packer.source.schema import read_row
from packer.supervise.supervisor import PretokenizedSupervisor

MODEL = load_model(Path(__file__).resolve().parents[2] / "packer" / "starter" / "files" / "tokenizer")
SUPERVISOR = PretokenizedSupervisor(MODEL)


def sample(number, ids, **marks) -> Sample:
    return read_row({"input_ids": ids, **marks}, number=number, schema="tokens", columns={})


def outcome(ids, **marks):
    """The code of a row's rejection, or its trained runs."""
    documents, rejections = SUPERVISOR.supervise([sample(0, ids, **marks)])
    assert documents.num_documents + len(rejections) == 1
    if rejections:
        return rejections[0].code, rejections[0].reason
    return list(zip(documents.run_start.tolist(), documents.run_end.tolist(), strict=True))


ROW = st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=12)


@given(st.lists(ROW, min_size=1, max_size=6))
def test_documents_are_their_rows_and_runs_are_the_maximal_trained_stretches(rows) -> None:
    samples = [
        sample(
            10 * n,
            [token for token, _ in row],
            loss_mask=[flag for _, flag in row],
            id=f"row {n}",
        )
        for n, row in enumerate(rows)
    ]
    documents, rejections = SUPERVISOR.supervise(samples)
    expected = {10 * n: runs for n, row in enumerate(rows) if (runs := runs_of([flag for _, flag in row]))}
    assert {each.row for each in rejections} == {10 * n for n in range(len(rows))} - set(expected)
    assert {each.code for each in rejections} <= {"nothing_trained"}
    assert documents.sample.tolist() == list(expected)
    labels = document_labels(documents)
    for number, (place, runs) in enumerate(expected.items()):
        row = rows[place // 10]
        tokens = slice(int(documents.offsets[number]), int(documents.offsets[number + 1]))
        own = slice(int(documents.run_offsets[number]), int(documents.run_offsets[number + 1]))
        columns = (documents.run_start, documents.run_end)
        assert list(zip(*(column[own].tolist() for column in columns), strict=True)) == runs
        assert documents.input_ids[tokens].tolist() == [token for token, _ in row]
        assert documents.sample_id[number] == f"row {place // 10}"
        trained = [t > 0 and flag for t, (_, flag) in enumerate(row)]
        assert labels[tokens].tolist() == [row[t][0] if it else -100 for t, it in enumerate(trained)]


def test_the_first_token_is_not_trained_whatever_the_row_says():
    assert outcome([5, 6, 7], labels=[5, 6, 7]) == [(1, 3)]
    assert outcome([5, 6], labels=[5, -100]) == (
        "nothing_trained",
        "the only token to train on is the first of a document",
    )
    assert outcome([5, 6], labels=[-100, -100]) == ("nothing_trained", "no token of the row is trained")


def test_every_id_must_be_in_the_vocabulary_and_added_tokens_are():
    last = MODEL.vocab_size - 1
    assert last in {token.id for token in MODEL.added_tokens}
    assert outcome([5, last], loss_mask=[0, 1]) == [(1, 2)]
    for wrong in (last + 1, 2**31 - 1, 2**40):
        code, reason = outcome([5, 6, wrong, 6], loss_mask=[0, 1, 0, 0])
        assert code == "unknown_token"
        assert reason == f"input_ids[2] is {min(wrong, 2**31 - 1)}, but the vocabulary ends at {last}"


def test_an_unknown_id_is_reported_by_its_place_in_the_row():
    row = {"loss_mask": [0, 0, 0, 1], "attention_mask": [0, 0, 1, 1]}
    code, reason = outcome([0, 0, 5, 10**6], **row)
    assert code == "unknown_token" and reason.startswith("input_ids[3] is 1000000, ")


def test_a_gap_of_the_vocabulary_is_no_token(monkeypatch):
    known = SUPERVISOR._is_token.copy()
    known[6] = False
    monkeypatch.setitem(SUPERVISOR.__dict__, "_is_token", known)
    code, reason = outcome([5, 6], loss_mask=[0, 1])
    assert (code, reason) == ("unknown_token", "input_ids[1] is 6, but the vocabulary has no such id")


def test_a_mask_that_lies_one_token_early_is_reported_by_the_stop_tokens_it_misses():
    stop = MODEL.stop_ids[0]
    ids = [5, 6, 7, stop, 5, 6, 7, stop, 9]
    right = [0, 0, 1, 1, 0, 0, 1, 1, 0]
    early = [*right[1:], 0]
    assert outcome(ids, loss_mask=right) == [(2, 4), (6, 8)]
    assert outcome(ids, loss_mask=early)[0] == "labels_shifted"
    labels = [token if flag else -100 for token, flag in zip(ids, early, strict=True)]
    assert outcome(ids, labels=labels) == [(1, 3), (5, 7)], "labels say so themselves"


def test_the_masks_of_data_sets_that_shift_them_for_their_loss_are_refused():
    """As verl's SFTDataset makes them: 1 from before the response to before its end, then padding."""
    prompt, response, stop = [5, 6, 7], [8, 9], MODEL.stop_ids[0]
    ids = [*prompt, *response, stop, MODEL.pad_id, MODEL.pad_id]
    attention = [1] * 6 + [0] * 2
    loss_mask = list(attention)
    loss_mask[: len(prompt) - 1] = [0] * (len(prompt) - 1)
    loss_mask[len(prompt) + len(response) + 1 - 1] = 0
    assert outcome(ids, loss_mask=loss_mask, attention_mask=attention)[0] == "labels_shifted"
    moved = [0, *loss_mask[:-1]]
    assert outcome(ids, loss_mask=moved, attention_mask=attention) == [(3, 6)]


def test_a_rollout_that_was_cut_is_taken_as_it_is():
    stop = MODEL.stop_ids[0]
    assert outcome([5, 6, 7, 8], loss_mask=[0, 0, 1, 1]) == [(2, 4)]
    assert outcome([5, 6, stop, 5, 6, 7], loss_mask=[0, 1, 0, 0, 1, 1]) == [(1, 2), (4, 6)]
