"""Rejection codes: why a row is not in the cache, and what to do about it.

The codes are part of the file format and never change.
"""

from collections.abc import Iterable, Mapping

from packer.recipe import ROW_SCHEMAS
from packer.recipe.named_options import as_option

_OF_ROWS = {
    "filtered": "the row does not pass a filter of the recipe, or the condition of its source",
    "contaminated": "the row contains a benchmark question",
    "duplicate": "the row repeats an earlier row, or one that is held out",
    "near_duplicate": "the row is nearly identical to an earlier row, or to one that is held out",
    "no_group": "the row has no value in the field that split.group names",
    "no_time": "the row has no time in the field that split.time names",
    "straddles": "an earlier row of the same group is in an earlier split",
    "leaks": "the row, or its first prompt, is nearly identical to one that is held out",
    "not_taken": "the source already has as many rows as its take asks for",
}

ROW_REASONS = tuple(_OF_ROWS)
"""Codes of valid rows that the recipe's rules leave out. Caches store their positions in this tuple, from 1."""

CODES: dict[str, str] = {
    # read
    "not_utf8": "the row is not valid UTF-8, or has half of a surrogate pair",
    "not_json": "the row is not valid JSON",
    "row_too_large": "the row is larger than rows.max_bytes",
    # understood
    "unknown_schema": "the row has none of the fields its schema needs",
    "wrong_type": "a value or a message is not what is expected in its place; the reason has its path",
    "unread_content": "the row gives its template a text in a variable that the template does not read",
    "unknown_role": "a message has a role the schema does not know",
    "bad_tools": "tools or a tool call cannot be read",
    "no_content": "a message has no content under a key that packer knows; the reason lists its keys",
    "empty": "the row has no messages, no text or no tokens",
    "multimodal": "the row contains images, which the build does not read, or audio or video",
    "media_count": "the row has more images than places for them, or fewer",
    "media_option": "a part with an image sets its own size, which changes its tokens",
    "media_missing": "a file that the row names as an image is not there or cannot be opened",
    "media_outside": "an image is not below the folder that media.root names",
    "media_url": "an image is a URL, and a build downloads nothing",
    "media_unreadable": "an image is damaged, or in no format that packer reads",
    "media_too_large": "an image has more bytes or pixels than packer accepts",
    "media_refused": "the model's processor refuses an image",
    "media_dropped": "the template does not write a placeholder for each image",
    "media_in_turn": "a trained turn contains an image",
    "cut_off": "the row's own log says that an answer did not end, such as `finish_reason: length`",
    "preference": "the row is a preference pair or a rated answer, not an example to imitate",
    "pair_no_prompt": "no prompt precedes the answers of a pair, or the rated answer",
    "pair_context_differs": "the sides of a pair, or its prompt, say different things before the answers",
    "pair_empty_side": "an answer of a pair, or the rated answer, is empty",
    # tokens of the row's own
    "no_labels": "the row is already tokenized, but nothing says which tokens are trained",
    "lengths_differ": "labels or a mask of the row are not as long as its input_ids",
    "labels_differ": "a label is neither -100 nor the id at its place",
    "labels_shifted": "the labels, or the mask, are shifted by one token from the tokens they belong to",
    "bad_spans": "`train_detail` names the characters of an answer that are trained, and is not read",
    "bad_mask": "a mask has values other than 0 and 1, or padding is between tokens",
    "already_packed": "the row is several documents in one",
    "bad_column": "a value that a column of the recipe takes from the row is absent or not what it declares",
    "unknown_token": "an id is not in the tokenizer's vocabulary",
    # rendered
    "template_error": "the chat template raised an error for this row",
    "render_too_large": "a rendering, or all texts of a rewritten history, are larger than rows.max_render_bytes",
    "too_many_turns": "the row's trained answers, times its messages, are more than 4,194,304, or its tools and calls "
    "more than 4,096",
    "prompt_diverges": "the turn that the template renders does not continue any of its prompts",
    "no_terminator": "the template writes no stop token after a turn",
    "part_not_found": "parts of an answer are trained, and the template writes one twice, in another order, or in a "
    "way that depends on what it says",
    "dropped_system": "the template does not render a system message",
    "dropped_user": "the template does not render a user message",
    "dropped_content": "the template does not render the text of an assistant turn",
    "dropped_reasoning": "the template does not render the reasoning of an assistant turn, or writes it as part of "
    "the answer",
    "dropped_tool_call": "the template does not render a tool call",
    "dropped_tool_result": "the template does not render a tool result",
    "dropped_tools": "the template does not render the tool definitions, or not the names of all parameters",
    "wrapped_twice": "a text already has the template's tags, or the headers of another model's prompts, or the system "
    "message defines tools, and so do the row's `tools`",
    "mangled_call": "a tool call cannot be read back from its rendering: it is escaped, changed, JSON within JSON, or "
    "cut by a closing tag in an argument, a null is written as text, or its result shows another id",
    "mangled_text": "a text or the tool definitions are not rendered as the row has them, but escaped (`&lt;`, `\\n`, "
    "U+FFFD), cut or changed",
    "open_reasoning": "an answer was cut off within its reasoning: it does not close it, or nothing follows it",
    "control_token": "a trained message (any message under supervision.control_tokens=reject) contains the text of "
    "a control token, or a trained text has a header or a stop token of another model",
    "control_render": "a control token typed in a message changes how the template renders the row",
    # supervised
    "nothing_trained": "the row has nothing to train on",
    "not_encodable": "the tokenizer fails on a text of the row",
    "proof_failed": "the ids do not decode to the rendered text",
    # paired
    "pair_rewritten": "an answer of preference data needs several documents: later turns rewrite earlier ones",
    "pair_modes_differ": "the template prompts the two answers of a pair differently",
    "pair_prompt_differs": "the ids before the two answers of a pair are not the same",
    "pair_identical": "both answers of a pair are the same",
    # packed
    "overlong": "the document is longer than a block",
    "truncated": "the part of a document that is beyond the length of a block",
    "untrained": "nothing is trained in a piece of a document, or in a block of a stream",
    # selected
    **_OF_ROWS,
}

_HINTS = {
    "not_utf8": "write the file as UTF-8: iconv -f ENCODING -t UTF-8 FILE; half of a surrogate pair is a cut character",
    "not_json": "correct or remove the row; NaN and Infinity are not JSON",
    "row_too_large": "--set rows.max_bytes=256MiB reads larger rows",
    "wrong_type": "the reason has what was expected there, and what was found",
    "unread_content": "--columns chat_template_kwargs=null leaves out all variables of rows",
    "unknown_role": "`--roles` says which role is which; a build proposes it",
    "bad_tools": "tools are a list of definitions, a call has a name and arguments, and a result has the id of its "
    "call; the reason has the path",
    "empty": "leave such rows out; if their text is in another field, `--columns` reads it",
    "multimodal": "--set media.images=read reads images, with the extra media and the folder of a model that has a "
    "processor as `--tokenizer`; audio and video are not read",
    "media_count": "each image needs a part of a content, or a tag <image> outside of answers",
    "media_option": "set the sizes for all images, in preprocessor_config.json",
    "media_missing": "paths begin at the folder of the rows; --set media.root=DIR looks below DIR, too",
    "media_outside": "--set media.root=DIR allows files below DIR",
    "media_url": "download the images, and name the files",
    "media_unreadable": "JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF are read",
    "media_too_large": "make the image smaller: models reduce it anyway",
    "media_refused": "the reason is the processor's own, such as a very wide image",
    "media_dropped": "give images in messages of the user; packer preview shows what the template writes",
    "media_in_turn": "models write no images: leave the image out, or give the message train: false",
    "cut_off": "it would teach a model to stop in the middle: leave it out, or give its message train: false; "
    "--columns finish_reason=null, or what the reason names, hides a field of the row that means something else; "
    "a key of a message has to be removed",
    "preference": "--schema preference reads pairs, --schema rated reads rated answers; to imitate the better side: "
    "--columns messages=chosen,rejected=null if it contains the whole conversation, "
    "--columns completion=chosen,rejected=null if the prompt is a field of its own",
    "pair_no_prompt": "if the prompt is in another field, `--columns` reads it as `prompt`; or give both sides "
    "whole conversations",
    "pair_context_differs": "give both sides the same messages up to the answer; --columns prompt=null ignores a "
    "prompt that both contain in other words",
    "pair_empty_side": "leave the row out, or write the missing answer",
    "bad_spans": "give the content as parts of type `text`, each with its own `train`",
    "bad_mask": "a mask is 1 where a token is trained and 0 elsewhere; padding is at one end. Other numbers beside the "
    "ids are columns: `--columns` leaves such a field out by its name (`loss_weights=null`), `labels` or a mask say "
    "what is trained, and `token_columns` carries the numbers, as docs/how-to/columns.md shows",
    "template_error": "the message is the template's own. Write the row as the template expects it, or use another "
    "template: --template FILE",
    "render_too_large": "--set rows.max_render_bytes=256MiB renders larger rows; where history is rewritten, "
    "--history last renders less",
    "too_many_turns": "split the conversation, or train its last answer only: --set supervision.turns=last",
    "part_not_found": "packer preview shows what the template writes; train the message as a whole, or not at all",
    "control_render": "take the control token out of the message; packer preview shows the row",
    "nothing_trained": "give the row an assistant message, or change supervision.turns",
    "not_encodable": "leave the row out",
    "proof_failed": "packer preview shows where ids and text differ; a tokenizer that changes texts cannot be verified",
    "pair_rewritten": "if only one turn is compared, give only that turn: those before it are the prompt",
    "pair_modes_differ": "if one answer has reasoning and the other has none, set the mode in template.kwargs",
    "pair_prompt_differs": "packer preview shows both sides",
    "pair_identical": "leave the row out: neither answer is preferred",
    "overlong": "--block-len N makes blocks longer; --set pack.overlong=split cuts documents into pieces",
    "truncated": "--block-len N makes blocks longer; --set pack.overlong=split keeps the rest as another piece",
    "untrained": "nothing is lost for training: such a piece has a loss of 0 / 0",
    "no_terminator": "packer preview shows how the template ends a turn",
    "prompt_diverges": "packer preview shows where prompt and turn differ; if no key helps, mend the template there",
    "control_token": "give messages that are not rendered, or remove the markers (the build writes the EOS after a "
    "text or completion itself)",
    "wrapped_twice": "give texts, results, calls and definitions of tools without tags and headers, each in its field",
    "mangled_call": "packer preview shows what the template writes; remove `|safe` or a second `tojson` from it, or "
    "write each argument with `tojson`, which quotes texts. If the reason names a closing tag, a server would cut the "
    "argument there: leave the row out. If it names a null, leave out that argument. Calls within a text belong in "
    "`tool_calls`",
    "mangled_text": "packer preview shows what the template writes; correct where it escapes, cuts or replaces text, "
    "or use another template",
    "open_reasoning": "leave it out, or give its message train: false, or a model learns to stop within its reasoning",
    "unknown_schema": f"name the schema: schema: {' | '.join(ROW_SCHEMAS)}",
    "no_content": "messages need their text under `content`, or `value` in ShareGPT. --set rows.empty_user=keep keeps "
    "user messages that are empty",
    "no_labels": "`--columns` reads the field that says what is trained as `loss_mask` or `labels`; "
    "--columns input_ids=input_ids,labels=input_ids trains every token",
    "lengths_differ": "each list has one entry per token; a mask of only the response needs `response_length`",
    "labels_differ": "labels are the ids themselves, and -100 where nothing is trained",
    "labels_shifted": "give labels and masks that are not shifted; if a mask leaves out stop tokens on purpose, give "
    "labels in its place",
    "already_packed": "give the rows as they were before they were packed",
    "bad_column": "the reason names the column; its `missing` stands for values that are null or absent",
    "unknown_token": "use the tokenizer that the ids were made with, including its added tokens",
    "filtered": "the reason names the filter or condition; packer stats counts what each drops",
    "contaminated": "the reason names the question; decontaminate.cover is the threshold",
    "duplicate": "the reason names the row that was kept; packer inspect CACHE --row FILE:ROW shows it",
    "near_duplicate": "the reason names the row that was kept; packer inspect CACHE --row FILE:ROW shows it; "
    "deduplicate.near.jaccard is the threshold",
    "no_group": "give the row the field, or name one that every row has in split.group",
    "no_time": "split.unit says how times are written: iso (the default), or s, ms, us or ns since 1970",
    "straddles": "this keeps a group on one side of a cutoff; without split.group, each row goes by its own time",
    "leaks": "the reason names the held-out row; packer inspect CACHE --row FILE:ROW shows it",
    "not_taken": "a larger sources.take.rows takes more",
}


_AS_FIELD = "supervision.reasoning=field"

_WITHOUT_VARIABLES = {
    "sources.columns={chat_template_kwargs: null}": "leaves out all variables of rows",
    "template.kwargs={}": "leaves out the variables of the recipe",
}

_WAYS = {
    "control_token": {"supervision.control_tokens=allow": "trains the letters of a marker as text, never the token"},
    "dropped_reasoning": {
        _AS_FIELD: "moves reasoning to where the template looks for it",
        "supervision.on_prompt_mismatch=continue": "writes the reasoning after a prompt that opens its block",
        "supervision.reasoning=inline": "leaves reasoning in the text, or puts it there in <think> tags",
        **_WITHOUT_VARIABLES,
    },
    "dropped_tool_call": {"rows.call_ids=named": "gives calls ids with their names, which this template writes alone"},
    "dropped_system": {
        "sources.roles={developer: system}": "gives the template system messages instead of a developer's"
    },
    "mangled_call": {"rows.call_ids=named": "gives results the ids that this template makes for their calls"},
    "no_terminator": {"supervision.no_terminator=append": "closes every turn with the EOS token"},
    "pair_modes_differ": {"template.kwargs={enable_thinking: true}": "sets it, if the template calls it so"},
    "pair_prompt_differs": {"supervision.turns=all": "trains answers from their first turn on"},
    "pair_rewritten": {
        "supervision.history_rewrite=as_rendered": "trains each answer in one document, as history shows its turns"
    },
    "prompt_diverges": {
        _AS_FIELD: "moves reasoning to where the template looks for it",
        "supervision.on_prompt_mismatch=continue": "trains the answer after its own prompt",
        **_WITHOUT_VARIABLES,
    },
    "template_error": {"rows.call_ids=short": "makes ids of 9 letters and digits"},
    "wrapped_twice": {
        "rows.wrapped=unwrap": "takes the tags off",
        "supervision.control_tokens=allow": "takes headers of turns as words",
        "sources.columns={tools: null}": "leaves `tools` out, if the system message defines them",
    },
}
"""Keys that may help rows which are rejected with a code, with what they do. A build names those with which it tried
such rows, and trained what they say."""


NO_PLACE = (
    "the template has no place for this: packer preview shows what it writes; leave it out, or use another template"
)
NO_TAGS = "give reasoning under `reasoning_content`, without tags, or leave it out: packer preview shows the text"


_IF_DROPPED = {
    "dropped_tool_call": "if the template writes one call of a message, write each call as a message of its own, "
    "followed by its result, or use a template that writes several",
    "dropped_tools": "templates look for the parameters of tools under `parameters`, as a JSON schema; for one that "
    "reads them under `properties`, docs/how-to/exports.md#parameters-of-tools has the command",
}
"""How rows are to be written for templates that have a place for some of such content."""


def ways_out(code: str, *, allowed: Iterable[str] = ()) -> dict[str, str]:
    """Return keys that may help rows rejected with a code, with what they do.

    Args:
        code: why they were rejected.
        allowed: kinds of losses that `supervision.allow_dropped` already names, or needs for other rows. The key is set
            as a whole, so the hint has to repeat them.
    """
    ways = _WAYS.get(code, {})
    if not code.startswith("dropped_"):
        return ways
    kinds = [*dict.fromkeys((*allowed, code.removeprefix("dropped_")))]
    untrained = ", and does not train turns with calls" if "tool_call" in kinds else ""
    return ways | {f"supervision.allow_dropped=[{','.join(kinds)}]": f"builds without it{untrained}"}


def rejection_hint(code: str, ways: Mapping[str, str] | None = None, *, advice: str | None = None) -> str:
    """Return what to do about rows rejected with a code: by default, with all keys that may help."""
    ways = ways_out(code) if ways is None else ways
    sets = [f"{as_option(key)} {effect}" for key, effect in ways.items()]
    if code in _IF_DROPPED and advice is None:
        sets, advice = sets or [NO_PLACE], _IF_DROPPED[code]
    advice = advice or _HINTS.get(code)
    return "; ".join([*sets, *([advice] if advice else [])]) or (NO_TAGS if code == "dropped_reasoning" else NO_PLACE)
