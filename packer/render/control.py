"""Control tokens typed as text: replaced by stand-ins while rendering, then restored as guarded text.

A message that contains the text `<|im_end|>` must not end a turn. Before rendering, each such text is replaced by a
stand-in of private-use characters, so that no search for a stop token can find it. Afterwards it is restored, and the
bytes it takes are *guarded*: the encoder treats them as ordinary text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from packer.batches import Message
from packer.literals import longest_of, replaced
from packer.render.conversation import Conversation
from packer.render.environment import RenderError
from packer.render.readback import strings
from packer.render.rewritten_history import Document, EncodedText, encoded

ControlTokens: TypeAlias = Literal["text", "reject", "allow"]
"""Values of a recipe's `supervision.control_tokens`: typed ones are text, reject their row, or are control tokens."""

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_RESERVED = re.compile("[\ue0f0-\ue0f3]")
"""Private-use characters that packer uses: for stand-ins, and in the aliases that guarded texts are encoded with."""

FOREIGN_ENDS = (
    *("</s>", "<eos>", "<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_turn|>"),
    *("<|return|>", "<|eot|>", "<turn|>", "[EOS]", "[|endofturn|]", "<end_of_utterance>"),
    *("<|endoftext|>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
)
"""Texts of the stop tokens of common model families. If a text ends with one that the tokenizer does not have, it was
prepared for another model."""

FOREIGN_MARKS = ("<|", "<\uff5c", "<start_of_turn>")
"""What headers of answers begin with."""

_LAST_CHARACTERS = frozenset(end[-1] for end in FOREIGN_ENDS)
_MARK = r"(?:<[|\uff5c]\w[^<>\s]*>|<start_of_turn>)"
_FOREIGN_HEADER = re.compile(
    rf"\s*(?:{_MARK}(?:assistant|model)\s*\n|{_MARK}\w*{_MARK}|<[|\uff5c]\w*(?:assistant|chatbot)\w*[|\uff5c]>)",
    re.IGNORECASE,
)
"""Matches a text that begins with a header of an answer: markers around a word, or one that names who answers."""

_STAND_IN = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


def control_pattern(contents: Mapping[str, int]) -> re.Pattern[str] | None:
    """Return a pattern that matches the text of any control token, longest first; None if there are none."""
    return re.compile(longest_of(contents)) if contents else None


def find_typed(value: Any, pattern: re.Pattern[str]) -> str | None:
    """Return the first match of a pattern in the texts of a JSON value, keys included."""
    return next((match[0] for text in strings(value) if (match := pattern.search(text)) is not None), None)


def typed_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that may contain typed text: all except the role."""
    return {key: item for key, item in message.items() if key != "role"}


@dataclass(slots=True)
class StandIns:
    """Replaces typed control tokens by stand-ins, and restores them."""

    pattern: re.Pattern[str]
    typed: list[str] = field(default_factory=list)
    """Text that each stand-in replaces, by number."""

    def hide(self, value: Any) -> Any:
        """Return a copy of a JSON value with every typed control token replaced by a stand-in."""
        return _map_strings(value, lambda text: self.pattern.sub(self._number, text))

    def hide_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Hide the control tokens in messages, except in their roles."""
        return [{"role": message["role"], **self.hide(typed_fields(message))} for message in messages]

    def reveal(self, text: str) -> tuple[str, list[tuple[int, int]], Callable[[int], int]]:
        """Restore the typed text, as :func:`~packer.literals.replaced` does."""
        return replaced(text, _STAND_IN, lambda match: self.typed[int(match[1])])

    def _number(self, match: re.Match[str]) -> str:
        self.typed.append(match[0])
        return f"{_OPEN}{len(self.typed) - 1}{_CLOSE}"


def _refuse_reserved(value: Any) -> None:
    """Refuse data with private-use characters of packer's, beside which stand-ins or aliases would be ambiguous."""
    if find_typed(value, _RESERVED) is not None:
        raise RenderError("control tokens typed beside private-use characters", code="control_render")


class TypedControl:
    """Handles control tokens that a row contains as text, according to the recipe's `control_tokens`."""

    def __init__(self, contents: Mapping[str, int], wanted: ControlTokens) -> None:
        self._pattern = control_pattern(contents)
        self._wanted = wanted

    def refuse(self, value: Any, where: str, message: int | None = None) -> None:
        """Refuse a value that would be trained if it contains a control token."""
        if self._pattern is None or self._wanted == "allow":
            return
        found = find_typed(value, self._pattern)
        if found is not None:
            trained = ", which would be trained as text" if self._wanted == "text" else ""
            raise RenderError(
                f"{where} contains the text of the control token '{found}'{trained}",
                code="control_token",
                message=message,
            )

    def refuse_all(self, messages: Sequence[Message], tools: Any) -> None:
        """Refuse a conversation all of which would be trained, as :meth:`refuse` does."""
        self.refuse(tools, "tools")
        for k, message in enumerate(messages):
            self.refuse(typed_fields(message.fields), f"messages[{k}]", k)

    def refuse_foreign(self, text: str, where: str, *, trained: str, message: int | None = None) -> None:
        """Refuse a text with a header or a stop token of other models, which it would teach as letters.

        A tag of reasoning may look like a header, but is not in what is `trained`.
        """
        if self._wanted == "allow":
            return
        header = _FOREIGN_HEADER.match(text)
        if header and header[0] in trained:
            reason = f"{where} begins with '{header[0].strip()}', the header of an answer under other models"
            raise RenderError(reason, code="control_token", message=message)
        said = text.rstrip()
        if not said.endswith(FOREIGN_ENDS):
            return
        end = next(filter(said.endswith, FOREIGN_ENDS))
        is_html = end == "</s>" and "<s>" in text and not text.lstrip().startswith("<s>")  # struck through
        if not is_html:
            reason = f"{where} ends with '{end}', the end of a turn or text under other models"
            raise RenderError(reason, code="control_token", message=message)

    def may_concern(self, texts: Sequence[str], trained: Sequence[str]) -> list[int]:
        """Return the numbers of the rows without messages of which something may be refused or guarded here.

        `texts` are the whole rows, `trained` is what of each is trained. Both ends of that are looked at, as foreign
        headers begin with ``<``.
        """
        found = {
            number
            for number, text in enumerate(trained)
            if text.lstrip()[:1] == "<" or text.rstrip()[-1:] in _LAST_CHARACTERS
        }
        pattern = self._pattern
        if pattern is not None and pattern.search("\n".join(texts)) is not None:  # one search for all: few have any
            found.update(number for number, text in enumerate(texts) if pattern.search(text) is not None)
        return sorted(found)

    def guarded(self, text: str) -> list[tuple[int, int]]:
        """Return the character ranges of the control tokens in a row without messages.

        A row that begins or ends with a control token was rendered already, or closed with EOS: its markers would be
        read and trained as ordinary characters. Within a row they are quoted.

        Raises:
            RenderError: the row was rendered already, or has such a token and the recipe rejects it.
        """
        if self._pattern is None or self._pattern.search(text) is None:
            return []
        ranges = [match.span() for match in self._pattern.finditer(text)]
        first, last = text[slice(*ranges[0])], text[slice(*ranges[-1])]
        if self._wanted == "reject":
            raise RenderError(f"the row contains the control token '{first}'", code="control_token")
        if self._wanted == "text" and not text[: ranges[0][0]].strip():
            raise RenderError(f"the row begins with the control token '{first}'", code="control_token")
        if self._wanted == "text" and not text[ranges[-1][1] :].strip():
            raise RenderError(f"the row ends with the control token '{last}'", code="control_token")
        _refuse_reserved(text)
        return ranges

    def hide(self, conversation: Conversation, row_kwargs: Mapping[str, Any]) -> tuple[StandIns | None, Conversation]:
        """Replace the control tokens in a conversation by stand-ins; return None and the conversation if it has none.

        Of the template variables only the row's, `row_kwargs`, are changed: those of the recipe are the user's own.

        Raises:
            RenderError: an answer has such a token, or any text if the recipe rejects them.
        """
        pattern = self._pattern
        if pattern is None:
            return None, conversation
        tools, own = conversation.tools, dict(row_kwargs)
        fields = [typed_fields(message) for message in conversation.messages]
        if find_typed([fields, tools, own], pattern) is None:
            return None, conversation
        refused = self._wanted == "reject"
        for k, message in enumerate(conversation.messages):
            if message["role"] == "assistant" or refused:
                self.refuse(fields[k], f"messages[{k}]", k)
        if refused:
            self.refuse(tools, "tools")
            self.refuse(own, "chat_template_kwargs")
        _refuse_reserved([fields, tools, conversation.kwargs])
        stand_ins = StandIns(pattern)
        hidden = replace(
            conversation,
            messages=stand_ins.hide_messages(conversation.messages),
            tools=stand_ins.hide(tools),
            kwargs={**conversation.kwargs, **{name: stand_ins.hide(value) for name, value in own.items()}},
        )
        return stand_ins, hidden


def revealed(document: Document, stand_ins: StandIns, hidden: Conversation, original: Conversation) -> EncodedText:
    """Encode a document of the `hidden` conversation with its typed control tokens restored and guarded."""
    # The document, and the prompt of each turn, which may end differently from what the document shows.
    renderings = [(document.last + 1, document.mode, False)]
    renderings += [(turn.message, turn.mode, True) for turn in document.placed]
    for num_messages, mode, prompt in renderings:
        shown, _, _ = stand_ins.reveal(hidden.render(hidden.messages[:num_messages], mode, prompt=prompt))
        if shown != original.render(original.messages[:num_messages], mode, prompt=prompt):
            raise RenderError(
                "a control token typed in a message changes how the template renders the row", code="control_render"
            )
    text, guarded, moved = stand_ins.reveal(document.text)
    turns = [(message, moved(a), moved(b)) for message, a, b in document.turns]
    masked = [(moved(a), moved(b)) for a, b in document.masked]
    return encoded(text, turns, guarded=guarded, masked=masked)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
