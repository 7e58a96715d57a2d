"""Every real template: what packer makes of conversations has no finding, and prompts that are trained are found."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fitted_tokenizers import templates
from supervision_stages import assistant, user

from packer.audit.foreign.rows import TokenRow, check, find_parts
from packer.audit.foreign.tokenizer_facts import facts_of
from packer.layout import document_labels
from packer.source.schema import read_row

pytestmark = [pytest.mark.real, pytest.mark.slow]


ROWS = [
    [user("why is the sky blue?"), assistant("light scatters"), user("and\nthen"), assistant("\n\nit is dark")],
    [{"role": "system", "content": "be brief"}, user("q"), assistant("a")],
    [user("think"), assistant("so", reasoning_content="hm")],
]


def found(rows, facts):
    return Counter(hit.code for row in rows for hit in check(row, find_parts(row, facts), facts))


def test_no_template_makes_a_false_alarm_and_none_hides_a_trained_prompt(real, fitted):
    looked_at = not_known = documents = 0
    for name, source in templates(real).items():
        stages = fitted.stages(name)
        model = stages.model
        facts = facts_of(replace(model, template=source))
        if not len(facts.header):
            not_known += 1
            continue
        samples = [read_row({"messages": row}, number=i, schema="messages", columns={}) for i, row in enumerate(ROWS)]
        made = stages.supervise(samples)[2].documents
        labels = document_labels(made).astype(np.int64)
        bounds = made.offsets.tolist()
        ids = [made.input_ids[start:end].astype(np.int64) for start, end in pairwise(bounds)]
        rows = [
            TokenRow(number=number, input_ids=ids[number], columns={"labels": labels[start:end]})
            for number, (start, end) in enumerate(pairwise(bounds))
        ]
        assert not found(rows, facts), name
        looked_at += 1
        if made.num_documents:
            documents += made.num_documents
            every = [replace(row, columns={"labels": row.input_ids}) for row in rows]
            assert found(every, facts)["prompt_trained"] == made.num_documents, name
    assert (looked_at, not_known) == (117, 21)
    assert documents > 200
