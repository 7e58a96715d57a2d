"""Every real template: what packer makes of conversations has no finding, and prompts that are trained are found."""

from dataclasses import replace

import numpy as np
import pytest
from fitted_tokenizers import Fitted, templates
from supervision_stages import assistant, user

from packer.audit.foreign.foreign_rows import ForeignRows
from packer.audit.foreign.row_checks import check
from packer.audit.foreign.token_kinds import find_places
from packer.audit.foreign.tokenizer_facts import Known, ask_template, space_ids
from packer.layout import document_labels
from packer.source.schema import read_row

pytestmark = [pytest.mark.real, pytest.mark.slow]


ROWS = [
    [user("why is the sky blue?"), assistant("light scatters"), user("and\nthen"), assistant("\n\nit is dark")],
    [{"role": "system", "content": "be brief"}, user("q"), assistant("a")],
    [user("think"), assistant("so", reasoning_content="hm")],
]


def found(rows, known):
    return {hits.code: hits.count for hits in check(rows, find_places(rows, known), known)}


def test_no_template_makes_a_false_alarm_and_none_hides_a_trained_prompt(real, tmp_path):
    fitted = Fitted(real, tmp_path)
    looked_at = not_known = documents = 0
    for name, source in templates(real).items():
        stages = fitted.stages(name)
        model = stages.model
        bos = next((t.id for t in model.added_tokens if t.content == model.named_tokens["bos_token"]), None)
        known = ask_template(
            Known(model=model, stop_ids=np.array(model.stop_ids), space_ids=space_ids(model), bos_id=bos), model, source
        )
        if not len(known.header):
            not_known += 1
            continue
        samples = [read_row({"messages": row}, number=i, schema="messages", columns={}) for i, row in enumerate(ROWS)]
        made = stages.supervise(samples)[2].documents
        labels = document_labels(made).astype(np.int64)
        rows = ForeignRows(
            numbers=np.arange(made.num_documents), input_ids=made.input_ids.astype(np.int64), offsets=made.offsets,
            columns={"labels": labels}, seq_lengths=None, unequal=np.zeros(0, np.int64),
        )  # fmt: skip
        # Where history is rewritten, answers of earlier documents are context in later ones.
        assert found(rows, known).keys() <= {"answers_masked"}, name
        looked_at += 1
        if made.num_documents:
            documents += made.num_documents
            every = replace(rows, columns={"labels": rows.input_ids})
            assert found(every, known).get("prompt_trained", 0) >= made.num_documents, name
    assert (looked_at, not_known) == (117, 21)
    assert documents > 200
