"""Rows of preference data, and caches of them."""


def said(role, content):
    return {"role": role, "content": content}


def pair(number):
    """A pair whose answers differ in length; their prompts, too."""
    asked = f"What is {number} plus {number}?" + " Say it in full." * (number % 3)
    return {
        "prompt": [said("user", asked)],
        "chosen": [said("assistant", f"It is {2 * number}." + " Truly." * (number % 4))],
        "rejected": [said("assistant", f"I think that {number} is enough" + "!" * (number % 5))],
        "margin": number / 2,
    }


def long_pair(number):
    """A pair whose chosen answer goes on after the user spoke again."""
    row = pair(number)
    return row | {"chosen": [*row["chosen"], said("user", "Sure?"), said("assistant", "Yes.")]}


def rated(number):
    row = pair(number)
    is_good = number % 3 > 0
    return {"prompt": row["prompt"], "completion": row["chosen" if is_good else "rejected"], "label": is_good}


def built(folder, rows, tokenizer, **options):
    """A cache of some rows, of more than one split where they are named."""
    import packer
    from packer.display import Silent

    packer.build(rows, folder, tokenizer=str(tokenizer), jobs=1, progress=Silent(), **options)
    return folder


def without_newlines(tokenizer, folder):
    """A copy of the starter's tokenizer whose template writes nothing behind a turn, as those of Llama 3 do."""
    import shutil

    shutil.copytree(tokenizer, folder)
    template = folder / "chat_template.jinja"
    text = template.read_text("utf-8")
    assert text.count("<|im_end|>\\n'") == 2
    template.write_text(text.replace("<|im_end|>\\n'", "<|im_end|>'"), "utf-8")
    return folder
