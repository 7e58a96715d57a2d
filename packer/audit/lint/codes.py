"""The codes of a template report: what each means and how much it matters."""

from typing import Literal, NamedTuple, TypeAlias

Level: TypeAlias = Literal["error", "warning", "note"]

LEVELS: tuple[Level, ...] = ("error", "warning", "note")


class Code(NamedTuple):
    """A kind of finding."""

    level: Level
    meaning: str


CODES: dict[str, Code] = {
    # nothing, or no plain chat, can be built
    "rows_all_rejected": Code("error", "none of the rows looked at can be kept"),
    "no_marks": Code("error", "the recipe goes by generation marks, and the template has none"),
    "no_template": Code("error", "the tokenizer has no chat template, so rows of messages cannot be built"),
    "bad_template": Code("error", "the template is not valid Jinja"),
    "split_marker": Code("error", "the template writes a marker that is several tokens of this tokenizer"),
    "plain_chat_refused": Code("error", "a question and an answer cannot be built: the template raises, or loses text"),
    "prompt_diverges": Code("error", "no prompt the template writes is how it begins a plain answer"),
    "no_terminator": Code("error", "the template writes no stop token after a plain answer"),
    # something is lost, or learned that nobody expects
    "rows_rejected": Code("warning", "some of the rows looked at are rejected"),
    "rows_price": Code(
        "warning", "rewritten history makes the rows looked at cost more tokens; a warning where a build would ask"
    ),
    "rows_skip_thinking": Code(
        "warning", "rows have answers without reasoning that are learned under the prompt of answers with reasoning"
    ),
    "header_learned": Code(
        "warning", "the template ignores add_generation_prompt, so the header of an answer is learned as part of it"
    ),
    "empty_reasoning_learned": Code(
        "warning", "an answer without reasoning is learned with the empty reasoning block the template puts before it"
    ),
    "turn_end_is_no_stop": Code(
        "warning", "the token that ends a turn in history is no stop token; answers run on to another one"
    ),
    "chat_rewritten": Code("warning", "an earlier answer of a plain chat changes when the conversation goes on"),
    "reasoning_forgotten": Code("warning", "the reasoning of an earlier answer is gone when the conversation goes on"),
    "dropped_system": Code("warning", "a system or developer message is not rendered"),
    "dropped_user": Code("warning", "a user message is not rendered"),
    "dropped_content": Code("warning", "the text of an answer is not rendered"),
    "dropped_reasoning": Code("warning", "the reasoning of an answer is not rendered"),
    "dropped_tool_call": Code("warning", "a tool call is not rendered"),
    "dropped_tool_result": Code("warning", "a tool result is not rendered"),
    "dropped_tools": Code("warning", "the tool definitions are not rendered"),
    "role_as_answer": Code("warning", "a message that is no answer is written under the header of an answer"),
    "shapes_fail": Code("warning", "the template breaks on common shapes of conversation; a note where they are rare"),
    "shape_rejected": Code("warning", "a plain chat can be built, but a common shape of conversation cannot"),
    "bos_missing": Code("warning", "the tokenizer opens texts with a BOS, and the template writes none, or not first"),
    "marks_header": Code("warning", "the generation marks begin before the answer does"),
    "marks_no_terminator": Code("warning", "the generation marks end before the stop token, so it is not learned"),
    "marks_elsewhere": Code("warning", "generation marks stand around text that is no answer"),
    "tokenizer_truncates": Code("warning", "tokenizer.json cuts every text at a length; packer switches that off"),
    "tokenizer_pads": Code("warning", "tokenizer.json pads every text; packer switches that off"),
    "tokenizer_read_otherwise": Code(
        "warning", "transformers 5 gives a chat other ids than tokenizer.json does, because of its tokenizer_class"
    ),
    # good to know
    "rows_modes": Code("note", "which prompts the answers of the rows looked at are learned under"),
    "rows_merged": Code(
        "note", "how many answers of the rows looked at would make one token with the end of their prompt"
    ),
    "rows_control_tokens": Code("note", "rows hold the text of control tokens"),
    "prompt_modes": Code("note", "the template knows several prompts; which answers are learned under which"),
    "opening_learned": Code("note", "every answer opens with text of the template, which is learned"),
    "terminator": Code("note", "which stop token ends a turn, and which are never written"),
    "after_terminator": Code("note", "the template writes text after the stop token; it is never learned"),
    "default_system": Code("note", "the template opens a chat with text of its own"),
    "reads_clock": Code("note", "the template writes today's date; builds see the recipe's"),
    "answer_changed": Code("note", "an answer is not rendered as the row has it: white space goes, or other text"),
    "border_merges": Code("note", "the beginning of an answer would make one token with the end of its prompt"),
    "space_swallowed": Code("note", "a token takes the white space after it, so that it is in no id"),
    "bos_doubled": Code("note", "the template writes a BOS, and the tokenizer adds another where it is asked to"),
    "bos_repeated": Code("note", "the template writes more than one BOS in a conversation"),
    "shapes_refused": Code("note", "the template refuses some conversations in words of its own"),
    "unusual_rejected": Code("note", "a rare shape of conversation cannot be built"),
    "arguments_as_text": Code("note", "the arguments of tool calls are given to the template as JSON text"),
    "null_as_empty": Code("note", "a null content is given to the template as an empty text"),
    "tool_template": Code("note", "rows with tools go through a template of their own"),
    "marks_rule": Code("note", "the marks say what is learned; the rest of the report shows what inference asks for"),
    "marks_late": Code(
        "note", "the generation marks begin after the answer does; a warning where the recipe goes by them"
    ),
    "marks_past_end": Code("note", "the generation marks go on after the stop token"),
    "marks_missing": Code("note", "an answer has no generation marks; a warning where the recipe goes by them"),
    "marks_agree": Code("note", "the generation marks mark what is learned"),
    "pad_is_stop": Code("note", "the padding token is a stop token"),
}
"""Code → level and meaning, in the order of a report."""

ORDER = {code: number for number, code in enumerate(CODES)}
