"""What composed renderings are known to show: nothing that is lost or garbled where it is looked for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import twins
from rendered_twice import assert_composed, batch
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.recipe import make_recipe


def source(body: str) -> str:
    ending = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    return f"{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{body}<|im_end|>\n{{% endfor %}}{ending}"


CALLS = "{% for c in m.tool_calls or [] %}{% set c = c.function %}{% set A = c.arguments %}{{ c.name }}: "


def called(arguments: Any, text: str = "and so it is") -> list[dict[str, Any]]:
    return [user("what is this"), assistant("", tool_calls=[call("look", arguments)]), result("r"), assistant(text)]


class Case(NamedTuple):
    template: str
    messages: list[Mapping[str, Any]]


CASES = {
    "a text of some kind is written, others are not": Case(
        source("{{ m.content if m.role == 'assistant' or '<' in m.content else '' }}"),
        [user("a<b"), assistant("and so it is")],
    ),
    "a text is written if another is of some kind": Case(
        source(
            "{% if m.role != 'tool' or '<' in messages[0].content %}{{ m.content }}{% endif %}" + CALLS + "{% endfor %}"
        ),
        [user("a<b"), *called({})[1:]],
    ),
    "a part of a text is written several times": Case(
        source("{{ m.content }}: {{ (m.content.split('|')[0] ~ '.') ~ m.content.split('|')[0] }}"),
        [user("&amp;| and more of it"), assistant("and so it is")],
    ),
    "empty arguments are not written": Case(
        source("{{ m.content }}" + CALLS + "{% if A is mapping %}{{ A | tojson }}{% endif %}{% endfor %}"), called("")
    ),
    "a zero is not written": Case(
        source("{{ m.content }}" + CALLS + "{% if A is mapping %}{{ A | tojson }}{% endif %}{% endfor %}"), called(0)
    ),
    "quotation marks of the template": Case(
        source("{{ m.content }}" + CALLS + '{\\"a\\": {{ A | tojson(indent=1) }}}' + "{% endfor %}"), called({"q": "a"})
    ),
    "arguments that look like another call of the message": Case(
        source("{{ m.content }}" + CALLS + "{{ A | tojson }} {{ A | tojson }}, {% endfor %}"),
        [
            user("what is this"),
            assistant("", tool_calls=[call("look", {"q": 'look(a="b")'}), call("look", {"a": 2})]),
            result("r"),
            assistant("and so it is"),
        ],
    ),
    "texts that become an escape side by side": Case(
        "{% for m in messages %}{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' }}{% endfor %}",
        [user("this and &"), user("amp; all of that"), assistant("and so it is")],
    ),
    "a text before the loop that becomes an escape": Case(
        "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' }}"
        "{% endfor %}",
        [user("this and &"), user("amp; all of that"), assistant("and so it is")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_found_as_by_the_letter(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    template, messages = CASES[name]
    stages = Stages.load(twins.byte_level(tmp_path / "twin", template=template))
    renderer = stages.with_template(template, make_recipe({}, [])).renderer
    renderer._filling = None
    rows = batch([chat(*messages)])
    recordings = assert_composed(renderer, rows)
    assert recordings.num_tried > recordings.num_failed


def test_a_row_with_a_blank_text_tells_nothing_of_one_with_a_short_text(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    template = source("{{ m.content if m.role != 'system' }}")
    stages = Stages.load(twins.byte_level(tmp_path / "twin", template=template))
    rows = [[system(text), user("what"), assistant("and so it is")] for text in (" ", "so")]
    rejections = stages.renderer.by_reference().render(
        batch([chat(*row, row=number) for number, row in enumerate(rows)])
    )
    assert [(each.row, each.code) for each in rejections.rejections] == [(1, "dropped_system")]
