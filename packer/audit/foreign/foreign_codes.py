"""The codes of an audit of prepared rows: what each means, how much it matters, and what it counts."""

from typing import NamedTuple

from packer.audit.lint.codes import Level


class Code(NamedTuple):
    """A kind of finding."""

    level: Level
    unit: str
    """What is counted, in the singular."""

    meaning: str
    hint: str


CODES: dict[str, Code] = {
    "columns_differ": Code(
        "error", "row", "columns of a row differ in length, so no label belongs to an id", "prepare these rows again"
    ),
    "ids_outside": Code(
        "error",
        "token",
        "ids are not in the vocabulary of this tokenizer",
        "the rows were made with another tokenizer, or --tokenizer names another one",
    ),
    "labels_shifted": Code(
        "error",
        "row",
        "labels are shifted: each is the id that follows; a Hugging Face model shifts once more and learns to skip",
        "labels[t] must be input_ids[t] or -100",
    ),
    "labels_foreign": Code(
        "error", "token", "labels are neither -100 nor the id at their place", "labels[t] must be input_ids[t] or -100"
    ),
    "nothing_trained": Code(
        "error",
        "row",
        "rows train nothing; a micro-batch of such rows has a loss of 0 / 0",
        "leave these rows out",
    ),
    "prompt_trained": Code(
        "error",
        "token",
        "the prompt is trained: labels on what users, the system or tools say",
        "TRL: assistant_only_loss=True, or rows of prompt and completion; "
        "axolotl: train_on_inputs: false, train_on_eos: turn",
    ),
    "terminator_masked": Code(
        "error",
        "answer",
        "answers are trained up to their stop token and not on it: from these the model does not learn to stop",
        "often a collator that masks the pad token where that is the EOS too; axolotl: train_on_eos: turn",
    ),
    "bos_doubled": Code(
        "error",
        "sequence",
        "sequences begin with two BOS tokens, which no prompt at inference does",
        "tokenize rendered text with add_special_tokens=False",
    ),
    "borders_missing": Code(
        "error",
        "border",
        "rows hold several conversations and nothing says where they begin: they attend to each other",
        "keep seq_lengths, or position_ids that begin again at 0",
    ),
    "borders_disagree": Code(
        "error",
        "row",
        "what says where sequences begin is not consistent: seq_lengths, position_ids and attention_mask differ",
        "prepare these rows again",
    ),
    "padding_trained": Code("error", "token", "padding is trained", "set the labels of padding to -100"),
    "header_trained": Code(
        "warning",
        "header",
        "headers of answers are trained, which the prompt gives at inference",
        "begin the marks of the template, or the completion, behind the header",
    ),
    "no_terminator": Code(
        "warning",
        "answer",
        "trained text ends without a stop token: it was cut, or the template writes none",
        "leave out rows that were cut at a length, or allow longer ones",
    ),
    "beginning_cut": Code(
        "warning",
        "row",
        "rows begin within a message and train what is left of it, without what came before it",
        "TRL's packing_strategy wrapped and bfd_split cut so, bfd does not; leave out what is longer than a row",
    ),
    "border_trained": Code(
        "warning",
        "border",
        "the first token of a sequence within a row has a label: its target is asked of another sequence's last token",
        "set it to -100; TRL's padding-free collator does so, others do not",
    ),
    "bos_missing": Code(
        "warning", "row", "rows do not begin with the BOS token the template writes", "rows may be cut on the left"
    ),
    "no_header": Code(
        "warning",
        "row",
        "rows hold no header of an answer as this template writes it, so their prompts were not looked at",
        "they were cut before an answer, or made with another template: --template names it",
    ),
    "answers_masked": Code(
        "note", "answer", "answers of the conversations are not trained", "as it should be where only some are meant"
    ),
}
"""Code → level, unit, meaning and hint, in the order of a report."""

ORDER = {code: number for number, code in enumerate(CODES)}

OF_NO_TOKENIZER = frozenset(
    {"columns_differ", "ids_outside", "labels_shifted", "labels_foreign", "nothing_trained", "borders_disagree"}
)
"""What is true of rows whatever the tokenizer, and that the ids are not its own."""
