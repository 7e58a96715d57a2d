r"""Rows made to break a reader, by schema, each with what must become of it.

A row is bytes as they stand in a file. `fate` is "kept", or the code it is rejected with. Where `spelled` is given, it is
the text the row trains, literally: what came through must be what was written.
"""

import json
from dataclasses import dataclass

KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row, what it is called, and what becomes of it."""

    name: str
    content: bytes
    fate: str
    spelled: str | None = None


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]", inner: bytes = b"") -> bytes:
    return opening * depth + inner + closing * depth


def chat(answer: bytes = b'"fine"', *, user: bytes = b'"how"', message: bytes = b"", row: bytes = b"") -> bytes:
    """A row of schema messages with JSON put in as it is."""
    return b'{"messages":[{"role":"user","content":%b},{"role":"assistant","content":%b%b}]%b}' % (
        user,
        answer,
        message,
        row,
    )


def call(arguments: bytes, *, name: bytes = b'"f"') -> bytes:
    """A row of schema messages whose answer is a tool call."""
    calls = b',"tool_calls":[{"type":"function","function":{"name":%b,"arguments":%b}}]' % (name, arguments)
    return chat(b"null", message=calls)


def text(value: bytes, *, row: bytes = b"") -> bytes:
    return b'{"text":%b%b}' % (value, row)


def _bytes_of(name: str, fate: str, *contents: tuple[str, bytes], spelled: str | None = None) -> list[Row]:
    return [Row(name=f"{name}: {kind}", content=content, fate=fate, spelled=spelled) for kind, content in contents]


def _answers(fate: str, **answers: bytes) -> list[Row]:
    return [Row(name=f"answer {name}", content=chat(answer), fate=fate) for name, answer in answers.items()]


def _spelled(name: str, answer: str) -> Row:
    """An answer of odd characters: kept, and trained exactly as it stands."""
    content = chat(json.dumps(answer, ensure_ascii=False).encode())
    return Row(name=f"characters: {name}", content=content, fate=KEPT, spelled=answer)


_UTF8 = [
    ("overlong", b'"\xc0\xaf"'),
    ("overlong NUL", b'"\xc0\x80"'),
    ("five bytes", b'"\xf8\x88\x80\x80\x80"'),
    ("six bytes", b'"\xfc\x84\x80\x80\x80\x80"'),
    ("a surrogate", b'"\xed\xa0\x80"'),
    ("a pair of surrogates", b'"\xed\xa0\xbd\xed\xb8\x80"'),
    ("beyond U+10FFFF", b'"\xf4\x90\x80\x80"'),
    ("a continuation alone", b'"a\x80b"'),
    ("two bytes of three", b'"\xe2\x82"'),
    ("latin-1", "é".encode("latin-1").join([b'"caf', b'"'])),
    ("0xff", b'"\xff"'),
]

ENCODINGS = [
    *(Row(name=f"UTF-8: {name}", content=chat(answer), fate="not_utf8") for name, answer in _UTF8),
    Row(
        name="UTF-8: cut inside a character at the end of the line", content=chat()[:-4] + b"\xe2\x82", fate="not_utf8"
    ),
    Row(name="UTF-8: broken in a key", content=chat(row=b',"\xff":1'), fate="not_utf8"),
    Row(name="UTF-8: broken in a field nobody reads", content=chat(row=b',"x":"\xfe"'), fate="not_utf8"),
    Row(name="UTF-8: broken in the arguments of a call", content=call(b'{"a":"\xc3"}'), fate="not_utf8"),
    Row(name="a byte order mark inside the file", content=b"\xef\xbb\xbf" + chat(), fate="not_json"),
    Row(name="a byte order mark within the row", content=chat(row=b',\xef\xbb\xbf"x":1'), fate="not_json"),
    Row(name="UTF-16 with a mark", content=chat().decode().encode("utf-16"), fate="not_utf8"),
    Row(name="UTF-16 little-endian", content=chat().decode().encode("utf-16-le"), fate="not_json"),
    Row(name="UTF-16 big-endian", content=chat().decode().encode("utf-16-be"), fate="not_json"),
    Row(name="UTF-32 with a mark", content=chat().decode().encode("utf-32"), fate="not_utf8"),
    Row(name="UTF-32 little-endian", content=chat().decode().encode("utf-32-le"), fate="not_json"),
    Row(name="UTF-7", content=b"+AHs-" + chat()[1:], fate="not_json"),
    Row(name="EBCDIC", content=chat().decode().encode("cp500"), fate="not_utf8"),
]

_HALVES = [
    ("high half", rb'"\ud800"'),
    ("low half", rb'"\udfff"'),
    ("the wrong way round", rb'"\ude00\ud83d"'),
    ("two high halves", rb'"\ud83d\ud83d\ude00"'),
    ("half, then a letter", rb'"\ud83da"'),
    ("upper-case half", rb'"\uD83D"'),
]

SURROGATES = [
    *(Row(name=f"escape: {name}", content=chat(answer), fate="not_utf8") for name, answer in _HALVES),
    Row(name="escape: half in a key", content=chat(row=rb',"\ud800":1'), fate="not_utf8"),
    Row(name="escape: half in the role", content=chat().replace(b"user", rb"\udc00"), fate="not_utf8"),
    Row(name="escape: half in a field nobody reads", content=chat(row=rb',"x":{"y":["\ud800"]}'), fate="not_utf8"),
    Row(name="escape: half in the arguments", content=call(rb'{"a":"\ud800"}'), fate="not_utf8"),
    Row(name="escape: half in the arguments as text", content=call(rb'"{\"a\":\"\\ud800\"}"'), fate="not_utf8"),
    Row(
        name="escape: a half after 200 levels",
        content=chat(row=b',"x":' + nested(200, inner=rb'"\ud800"')),
        fate="not_utf8",
    ),
    Row(name="escape: a whole pair", content=chat(rb'"\ud83d\ude00"'), fate=KEPT, spelled="😀"),
    Row(name="escape: a backslash before u", content=chat(rb'"\\ud800"'), fate=KEPT, spelled="\\ud800"),
]

CONTROLS = [
    *_answers(
        "not_json",
        NUL=b'"a\x00b"',
        bell=b'"\x07"',
        tab=b'"a\tb"',
        unit_separator=b'"\x1f"',
        carriage_return=b'"a\rb"',
        vertical_tab=b'"\x0b"',
        bad_escape=rb'"\x41"',
        short_escape=rb'"\u12"',
        escape_at_the_end=b'"\\"',
    ),
    Row(name="NUL bytes behind the row", content=chat() + bytes(7), fate="not_json"),
    Row(name="NUL bytes before the row", content=bytes(7) + chat(), fate="not_json"),
    Row(name="nothing but NUL bytes, as a crash leaves them", content=bytes(512), fate="not_json"),
    Row(name="a form feed", content=b"\x0c", fate="not_json"),
    Row(name="a form feed before the row", content=b"\x0c" + chat(), fate="not_json"),
    Row(name="a no-break space before the row", content="\u00a0".encode() + chat(), fate="not_json"),
    Row(name="a line separator between keys", content=chat(row=",\u2028".encode() + b'"x":1'), fate="not_json"),
    Row(name="carriage returns between tokens", content=chat(row=b'\r,\r"x"\r:\r1'), fate=KEPT),
    Row(name="tabs and spaces around", content=b" \t " + chat() + b"\t \r", fate=KEPT),
    Row(name="two carriage returns at the end", content=chat() + b"\r\r", fate=KEPT),
    Row(
        name="control characters as escapes",
        content=chat(rb'"\u0000\u0001\u001b\u007f"'),
        fate=KEPT,
        spelled="\0\1\x1b\x7f",
    ),
]

CHARACTERS = [
    _spelled("line and paragraph separators", "a\u2028b\u2029c\x85d"),
    _spelled("delete and the second control block", "a\x7fb\x80c\x9fd"),
    _spelled("zero width", "a\u200bb\u200cc\u200dd\u2060e\ufefff"),
    _spelled("right to left and back", "a\u202eb\u202cc\u2066d\u2069e"),
    _spelled("private use, marks of the renderer", "\ue0f2a\ue0f3 \ue200\ue0f2\ue0f3"),
    _spelled("private use, planes 15 and 16", "\U000f0000\U0010fffd"),
    _spelled("no characters", "\uffff\ufffe\ufdd0\U0001ffff\U0010ffff"),
    _spelled("replacement", "\ufffd"),
    _spelled("composed and decomposed", "é e\u0301 Å Å ﬁ ½"),
    _spelled("a thousand marks on a letter", "a" + "\u0301" * 1000),
    _spelled("tags of plane 14", "a\U000e0041\U000e007f"),
    _spelled("joined emoji", "👩\u200d👩\u200d👧🏽 🇰🇷"),
    _spelled("letters whose case changes length", "İıſßŉ"),
    _spelled("spaces of all kinds", "a \u00a0\u2003\u3000\u1680 b"),
    _spelled("newlines of all kinds", "\na\r\nb\rc\x0bd\x0ce\n\n"),
    _spelled("a template", "{{ 7*7 }}{% for x in range(9**9) %}{{ x }}{% endfor %}{# c #}"),
    _spelled("the template's own variables", "{{ messages }} {{ raise_exception('x') }}"),
    _spelled("printf and format", "%s%n%d {0} {__class__} ${jndi:ldap://a}"),
    _spelled("JSON within", '{"messages": [{"role": "assistant", "content": "\\ud800"}]}'),
    _spelled("a word of 20,000 letters", "a" * 20_000),
    _spelled("backslashes and quotes", '\\"' * 500 + "\\"),
]

NUMBERS = [
    Row(name=f"number: {name} in a field nobody reads", content=chat(row=b',"x":' + value), fate=fate)
    for name, value, fate in (
        ("NaN", b"NaN", "not_json"),
        ("Infinity", b"Infinity", "not_json"),
        ("-Infinity", b"-Infinity", "not_json"),
        ("nan", b"nan", "not_json"),
        ("1e400", b"1e400", "wrong_type"),
        ("-1e400", b"-1e400", "wrong_type"),
        ("1e-400", b"1e-400", KEPT),
        ("-0", b"-0", KEPT),
        ("2^63", b"%d" % 2**63, KEPT),
        ("2^64", b"%d" % 2**64, KEPT),
        ("10^308", b"1" + b"0" * 308, KEPT),
        ("10^5000", b"1" + b"0" * 5000, "wrong_type"),
        ("10^100000", b"1" + b"0" * 100_000, "wrong_type"),
        ("0.1 with 100,000 digits", b"0." + b"1" * 100_000, KEPT),
        ("a leading zero", b"01", "not_json"),
        ("a leading plus", b"+1", "not_json"),
        ("a bare point", b"1.", "not_json"),
        ("hexadecimal", b"0x10", "not_json"),
        ("an underscore", b"1_000", "not_json"),
    )
] + [
    Row(name="number: 2^64 in the arguments", content=call(b'{"a":%d}' % 2**64), fate=KEPT),
    Row(name="number: 4,000 digits in the arguments", content=call(b'{"a":1' + b"0" * 4000 + b"}"), fate=KEPT),
    Row(name="number: 10^5000 in the arguments", content=call(b'{"a":1' + b"0" * 5000 + b"}"), fate="wrong_type"),
    Row(
        name="number: 10^5000 in the arguments as text",
        content=call(b'"{\\"a\\":1' + b"0" * 5000 + b'}"'),
        fate="bad_tools",
    ),
    Row(name="number: NaN in the arguments", content=call(b'{"a":NaN}'), fate="not_json"),
    Row(name="number: NaN in the arguments as text", content=call(b'"{\\"a\\":NaN}"'), fate="bad_tools"),
    Row(name="number: an id of 4,300 digits", content=chat(row=b',"id":' + b"9" * 4300), fate=KEPT),
    Row(
        name="number: 2^70 in the template's variables",
        content=chat(row=b',"chat_template_kwargs":{"x":%d}' % 2**70),
        fate=KEPT,
    ),
    Row(name="number: a weight of 2", content=chat(message=b',"weight":2'), fate="wrong_type"),
    Row(name="number: a weight of -0.0", content=chat(message=b',"weight":-0.0'), fate="nothing_trained"),
    Row(name="number: a weight of 1e-320", content=chat(message=b',"weight":1e-320'), fate="nothing_trained"),
    Row(name="number: a weight of 2^70", content=chat(message=b',"weight":%d' % 2**70), fate="wrong_type"),
]

KEYS = [
    Row(name=f"twice: {name}", content=content, fate="duplicate_key")
    for name, content in (
        ("messages", chat()[:-1] + b',"messages":[]}'),
        ("messages, spaced", chat()[:-1] + b', "messages" : []}'),
        ("messages, one key escaped", chat()[:-1] + rb',"\u006dessages":[]}'),
        ("content", chat(message=b',"content":"other"')),
        ("content, the same value", chat(message=b',"content":"fine"')),
        ("role", chat(message=b',"role":"user"')),
        ("an argument", call(b'{"a":1,"a":2}')),
        ("an argument, far down", call(b'{"a":[{"b":{"c":1,"c":2}}]}')),
        ("a field nobody reads", chat(row=b',"x":{"y":1,"y":1}')),
        ("the empty key", chat(row=b',"":1,"":2')),
        ("a key that ends in a backslash", chat(row=rb',"a\\":1,"a\\":2')),
        ("in 10,000 objects", chat(row=b',"x":[' + b",".join([b'{"a":1,"a":2}'] * 10_000) + b"]")),
        ("a key of a million letters", chat(row=b',"%b":1,"%b":2' % (b"k" * 10**6, b"k" * 10**6))),
    )
] + [
    Row(name="twice: an argument, in arguments as text", content=call(rb'"{\"a\":1,\"a\":2}"'), fate="bad_tools"),
    Row(
        name="key and value look like keys",
        content=chat(rb'"\":\":,\"a\":1,\"a\":2"', row=rb',"a\\":"\\\":"'),
        fate=KEPT,
    ),
    Row(name="keys that differ in case", content=chat(row=b',"Messages":[],"MESSAGES":1'), fate=KEPT),
    Row(name="keys that only look alike", content=chat(row=',"é":1,"e\u0301":2,"а":3,"a":4'.encode()), fate=KEPT),
    Row(
        name="key: __proto__, __class__ and self",
        content=chat(row=b',"__proto__":{"x":1},"__class__":"os.system","self":1'),
        fate=KEPT,
    ),
    Row(
        name="key: methods of a dictionary in a message",
        content=chat(message=b',"items":1,"get":2,"keys":3,"__class__":4'),
        fate=KEPT,
    ),
    Row(name="key: empty", content=chat(row=b',"":""', message=b',"":1'), fate=KEPT),
    Row(name="key: a million letters", content=chat(row=b',"' + b"k" * 10**6 + b'":1'), fate=KEPT),
    Row(
        name="key: 100,000 of them",
        content=chat(row=b"," + b",".join(b'"k%d":%d' % (i, i) for i in range(100_000))),
        fate=KEPT,
    ),
    Row(name="key: not a string", content=b"{messages: []}", fate="not_json"),
    Row(name="key: single quotes", content=chat().replace(b'"', b"'"), fate="not_json"),
]

SYNTAX = [
    Row(name=name, content=content, fate=fate)
    for name, content, fate in (
        ("cut in half", chat()[:40], "not_json"),
        ("cut before the last bracket", chat()[:-1], "not_json"),
        ("two rows on a line", chat() + chat(), "not_json"),
        ("a comma behind the row", chat() + b",", "not_json"),
        ("a comma too many", chat().replace(b"}]", b"},]"), "not_json"),
        ("a comment", chat() + b" // fine", "not_json"),
        ("a hash comment", b"# rows follow", "not_json"),
        ("the end of an array", b"]", "not_json"),
        ("Python's repr", b"{'messages': None}", "not_json"),
        ("a mark of git", b"<<<<<<< HEAD", "not_json"),
        ("HTML", b"<html><body>404</body></html>", "not_json"),
        ("CSV", b"user,assistant", "not_json"),
        ("a pickle", b"\x80\x04\x95\x0f\x00\x00\x00\x8c\x02os\x8c\x06system\x93", "not_utf8"),
        ("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "not_utf8"),
        ("null", b"null", "wrong_type"),
        ("true", b"true", "wrong_type"),
        ("a number", b"12", "wrong_type"),
        ("a string", b'"messages"', "wrong_type"),
        ("an array", b"[" + chat() + b"]", "wrong_type"),
        ("an empty array", b"[]", "wrong_type"),
        ("an empty object", b"{}", "unknown_schema"),
        ("an object of another schema", b'{"text":"a"}', "unknown_schema"),
        ("a minus", b"-", "not_json"),
        ("a quote", b'"', "not_json"),
    )
]

DEPTHS = [
    Row(name=f"depth: {name}", content=content, fate=fate)
    for name, content, fate in (
        ("256 in all", chat(row=b',"x":' + nested(255)), KEPT),
        ("257 in all", chat(row=b',"x":' + nested(256)), "not_json"),
        ("100,000 arrays", chat(row=b',"x":' + nested(100_000)), "not_json"),
        ("100,000 objects", chat(row=b',"x":' + nested(100_000, b'{"a":', b"}", b"1")), "not_json"),
        ("100,000 arrays that never end", b"[" * 100_000, "not_json"),
        ("100,000 arrays that were never begun", b"]" * 100_000, "not_json"),
        ("100,000 arrays as the content", chat(nested(100_000)), "not_json"),
        ("100,000 levels of arguments", call(nested(100_000, b'{"a":', b"}", b"1")), "not_json"),
        ("100,000 levels of arguments as text", call(b'"' + nested(100_000) + b'"'), "bad_tools"),
        ("200 levels of arguments", call(nested(200, b'{"a":', b"}", b"1")), KEPT),
        ("255 levels of arguments as text", call(b'"' + nested(255, rb"{\"a\":", b"}", b"1") + b'"'), KEPT),
        (
            "200 levels of the template's variables",
            chat(row=b',"chat_template_kwargs":{"x":' + nested(200) + b"}"),
            KEPT,
        ),
        ("200 levels in a message", chat(message=b',"x":' + nested(200)), KEPT),
        (
            "200 levels of a tool's parameters",
            chat(row=b',"tools":[{"name":"f","parameters":' + nested(200, b'{"a":', b"}", b"{}") + b"}]"),
            KEPT,
        ),
        ("brackets within a string", chat(b'"' + b"[{" * 5000 + b'"'), KEPT),
    )
]

TYPES = [
    *_answers(
        "wrong_type",
        an_int=b"7",
        a_float=b"7.5",
        true=b"true",
        an_object=b'{"text":"a"}',
        a_list_of_ints=b"[1,2]",
        a_list_of_null=b"[null]",
        a_part_without_type=b'[{"text":"a"}]',
        a_part_of_unknown_type=b'[{"type":"exec","text":"a"}]',
        a_part_whose_text_is_an_int=b'[{"type":"text","text":7}]',
        a_part_without_text=b'[{"type":"text"}]',
        a_part_whose_type_is_a_list=b'[{"type":["text"],"text":"a"}]',
    ),
    *_answers("no_content", null=b"null"),
    *_answers(
        "nothing_trained",
        empty=b'""',
        a_space=b'" "',
        newlines=rb'"\n\n\n"',
        an_empty_list=b"[]",
        an_empty_part=b'[{"type":"text","text":""}]',
    ),
    *_answers(
        KEPT,
        a_part=b'[{"type":"text","text":"fine"}]',
        ten_thousand_parts=b"[" + b",".join([b'{"type":"text","text":"a "}'] * 10_000) + b"]",
    ),
    Row(name="messages: an object", content=b'{"messages":{"role":"user","content":"a"}}', fate="wrong_type"),
    Row(name="messages: a string", content=b'{"messages":"hello"}', fate="wrong_type"),
    Row(name="messages: a number", content=b'{"messages":7}', fate="wrong_type"),
    Row(name="messages: false", content=b'{"messages":false}', fate="wrong_type"),
    Row(name="messages: null", content=b'{"messages":null}', fate="unknown_schema"),
    Row(name="messages: none", content=b'{"messages":[]}', fate="empty"),
    Row(name="messages: of null", content=b'{"messages":[null]}', fate="wrong_type"),
    Row(name="messages: of lists", content=b'{"messages":[["user","a"]]}', fate="wrong_type"),
    Row(name="messages: of strings", content=b'{"messages":["a","b"]}', fate="wrong_type"),
    Row(name="messages: without a role", content=b'{"messages":[{"content":"a"}]}', fate="wrong_type"),
    Row(name="role: a list", content=chat().replace(b'"user"', b'["user"]'), fate="wrong_type"),
    Row(name="role: null", content=chat().replace(b'"user"', b"null"), fate="wrong_type"),
    Row(name="role: empty", content=chat().replace(b'"user"', b'""'), fate="unknown_role"),
    Row(name="role: a million letters", content=chat().replace(b"user", b"u" * 10**6), fate="unknown_role"),
    Row(name="role: with a newline", content=chat().replace(b"user", rb"user\n<|im_end|>"), fate="unknown_role"),
    Row(name="role: in capitals", content=chat().replace(b"assistant", b"ASSISTANT"), fate=KEPT),
    Row(name="role: a dotless i", content=chat().replace(b"assistant", "assıstant".encode()), fate="unknown_role"),
    Row(name="user content: null", content=chat(user=b"null"), fate="no_content"),
    Row(name="user content: a number", content=chat(user=b"1"), fate="wrong_type"),
    Row(name="only a user", content=b'{"messages":[{"role":"user","content":"a"}]}', fate="nothing_trained"),
    Row(name="train: a string", content=chat(message=b',"train":"yes"'), fate="wrong_type"),
    Row(name="weight: NaN as a string", content=chat(message=b',"weight":"NaN"'), fate="wrong_type"),
    Row(name="reasoning: a list", content=chat(message=b',"reasoning_content":["a"]'), fate="wrong_type"),
    Row(name="template variables: a list", content=chat(row=b',"chat_template_kwargs":[1]'), fate="wrong_type"),
    Row(name="system: a number", content=chat(row=b',"system":1'), fate="wrong_type"),
    Row(name="id: an object", content=chat(row=b',"id":{"a":1}'), fate=KEPT),
    Row(name="id: NUL and newlines", content=chat(row=rb',"id":"\u0000\n\r\u2028"'), fate=KEPT),
    Row(name="images: a number", content=chat(row=b',"images":1'), fate="multimodal"),
]

TOOLS = [
    Row(name=f"call: {name}", content=content, fate=fate)
    for name, content, fate in (
        ("arguments are a list", call(b"[1]"), "bad_tools"),
        ("arguments are a number", call(b"7"), "bad_tools"),
        ("arguments are null", call(b"null"), KEPT),
        ("arguments are blank", call(b'" \\n"'), KEPT),
        ("arguments are text that is no JSON", call(b'"{a: 1}"'), "bad_tools"),
        ("arguments are JSON in JSON in JSON", call(json.dumps(json.dumps('{"a":1}')).encode()), "bad_tools"),
        ("arguments are cut off", call(rb'"{\"a\": \"b"'), "bad_tools"),
        ("arguments are Python", call(b"\"{'a': True}\""), "bad_tools"),
        ("arguments begin with a byte order mark", call('"\ufeff{}"'.encode()), "bad_tools"),
        ("name is null", call(b"{}", name=b"null"), "bad_tools"),
        ("name is an object", call(b"{}", name=b"{}"), "bad_tools"),
        ("name is __import__", call(b"{}", name=b'"__import__"'), KEPT),
        ("calls are an object", chat(b"null", message=b',"tool_calls":{"name":"f"}'), "wrong_type"),
        ("calls are of numbers", chat(b"null", message=b',"tool_calls":[1]'), "bad_tools"),
        ("calls are text", chat(b"null", message=rb',"tool_calls":"[{\"name\":\"f\"}]"'), KEPT),
        ("calls are text that is no JSON", chat(b"null", message=b',"tool_calls":"f()"'), "bad_tools"),
        ("function is a string", chat(b"null", message=b',"tool_calls":[{"function":"f"}]'), "bad_tools"),
        ("tools are a number in text", chat(row=b',"tools":"7"'), "bad_tools"),
        ("tools are a number", chat(row=b',"tools":7'), "wrong_type"),
        ("tools without a name", chat(row=b',"tools":[{"type":"function"}]'), "bad_tools"),
        ("tools whose name is a list", chat(row=b',"tools":[{"name":["f"]}]'), "bad_tools"),
        ("markers of a call in an argument", call(rb'{"a":"</tool_call><tool_call>"}'), KEPT),
        ("a control token in an argument", call(rb'{"a":"<|im_end|>"}'), "control_token"),
    )
]

CONTROL_TOKENS = [
    Row(
        name="control token: in a question",
        content=chat(user=rb'"<|im_end|>\n<|im_start|>assistant\n"'),
        fate=KEPT,
        spelled="fine",
    ),
    Row(name="control token: in an answer", content=chat(b'"a<|im_end|>b"'), fate="control_token"),
    Row(name="control token: escaped in an answer", content=chat(rb'"a\u003c|im_end|\u003eb"'), fate="control_token"),
    Row(
        name="control token: in two parts of an answer",
        content=chat(b'[{"type":"text","text":"<|im_"},{"type":"text","text":"end|>"}]'),
        fate="control_token",
    ),
    Row(name="control token: cut in an answer", content=chat(b'"<|im_end"'), fate=KEPT, spelled="<|im_end"),
    Row(
        name="control token: with a zero-width space",
        content=chat('"<|im_\u200bend|>"'.encode()),
        fate=KEPT,
        spelled="<|im_\u200bend|>",
    ),
]

MESSAGES = [
    *ENCODINGS,
    *SURROGATES,
    *CONTROLS,
    *CHARACTERS,
    *NUMBERS,
    *KEYS,
    *SYNTAX,
    *DEPTHS,
    *TYPES,
    *TOOLS,
    *CONTROL_TOKENS,
]


def _turns(value: bytes, sender: bytes = b'"gpt"', row: bytes = b"") -> bytes:
    return b'{"conversations":[{"from":"human","value":"how"},{"from":%b,"value":%b}]%b}' % (sender, value, row)


SHAREGPT = [
    Row(name=name, content=content, fate=fate)
    for name, content, fate in (
        ("a value that is a number", _turns(b"7"), "wrong_type"),
        ("a value that is null", _turns(b"null"), "no_content"),
        ("a value of parts", _turns(b'[{"type":"text","value":"a"}]'), KEPT),
        ("a sender that is null", _turns(b'"a"', b"null"), "wrong_type"),
        ("a sender that is a list", _turns(b'"a"', b'["gpt"]'), "wrong_type"),
        ("a sender nobody knows", _turns(b'"a"', b'"root"'), "unknown_role"),
        ("a call that is no JSON", _turns(b'"f(1)"', b'"function_call"'), "bad_tools"),
        ("a call that is a number", _turns(b'"7"', b'"function_call"'), "bad_tools"),
        ("a call that is null", _turns(b"null", b'"function_call"'), "no_content"),
        ("a call of depth 100,000", _turns(b'"' + nested(100_000) + b'"', b'"function_call"'), "bad_tools"),
        ("a call with a key twice", _turns(rb'"{\"name\":\"f\",\"name\":\"g\"}"', b'"function_call"'), "bad_tools"),
        ("conversations: an object", b'{"conversations":{"from":"human","value":"a"}}', "wrong_type"),
        ("conversations: of numbers", b'{"conversations":[1,2]}', "wrong_type"),
        ("conversations: none", b'{"conversations":[]}', "empty"),
        (
            "conversations: exchanges and turns",
            b'{"conversations":[{"human":"a","assistant":"b"},{"from":"human","value":"c"}]}',
            "wrong_type",
        ),
        ("conversations: an exchange of numbers", b'{"conversations":[{"human":1,"assistant":2}]}', "wrong_type"),
        ("conversations twice, under both names", _turns(b'"a"', row=b',"conversation":7'), "wrong_type"),
        ("half a pair", _turns(rb'"\ud800"'), "not_utf8"),
        ("a key twice", _turns(b'"a","value":"b"'), "duplicate_key"),
        ("tools that are no JSON", _turns(b'"a"', row=b',"tools":"[{"'), "bad_tools"),
    )
]


def _alpaca(output: bytes = b'"fine"', instruction: bytes = b'"how"', row: bytes = b"") -> bytes:
    return b'{"instruction":%b,"output":%b%b}' % (instruction, output, row)


ALPACA = [
    Row(name=name, content=content, fate=fate)
    for name, content, fate in (
        ("output: a number", _alpaca(b"7"), "wrong_type"),
        ("output: a list", _alpaca(b'["a"]'), "wrong_type"),
        ("output: null", _alpaca(b"null"), "unknown_schema"),
        ("output: empty", _alpaca(b'""'), "nothing_trained"),
        ("instruction: empty", _alpaca(instruction=b'""'), "empty"),
        ("instruction: an object", _alpaca(instruction=b"{}"), "wrong_type"),
        ("input: a number", _alpaca(row=b',"input":7'), "wrong_type"),
        ("history: a string", _alpaca(row=b',"history":"a"'), "wrong_type"),
        ("history: triples", _alpaca(row=b',"history":[["a","b","c"]]'), "wrong_type"),
        ("history: numbers", _alpaca(row=b',"history":[[1,2]]'), "wrong_type"),
        ("history: 100 exchanges", _alpaca(row=b',"history":[' + b",".join([b'["a","b"]'] * 100) + b"]"), KEPT),
        ("half a pair", _alpaca(rb'"\ud800"'), "not_utf8"),
        ("a key twice", _alpaca(row=b',"output":"b"'), "duplicate_key"),
        ("both names of a field", _alpaca(row=b',"response":"fine"'), KEPT),
        ("both names of a field, unlike", _alpaca(row=b',"response":"b"'), "wrong_type"),
    )
]


def _completion(completion: bytes = b'"fine"', prompt: bytes = b'"how"', row: bytes = b"") -> bytes:
    return b'{"prompt":%b,"completion":%b%b}' % (prompt, completion, row)


COMPLETION = [
    Row(name=name, content=content, fate=fate)
    for name, content, fate in (
        ("completion: empty", _completion(b'""'), "empty"),
        ("completion: a number", _completion(b"7"), "wrong_type"),
        ("completion: a list beside a string", _completion(b'[{"role":"assistant","content":"a"}]'), "wrong_type"),
        ("prompt: an object", _completion(prompt=b"{}"), "wrong_type"),
        ("prompt: empty", _completion(prompt=b'""'), KEPT),
        ("both lists", _completion(b'[{"role":"assistant","content":"a"}]', b'[{"role":"user","content":"b"}]'), KEPT),
        ("both lists, empty", _completion(b"[]", b"[]"), "empty"),
        ("both lists, of numbers", _completion(b"[1]", b"[2]"), "wrong_type"),
        ("half a pair", _completion(prompt=rb'"\udc00"'), "not_utf8"),
        ("a key twice", _completion(row=b',"prompt":"b"'), "duplicate_key"),
        ("a control token", _completion(b'"a<|im_end|>"'), "control_token"),
    )
]

TEXT = [
    Row(name=name, content=content, fate=fate)
    for name, content, fate in (
        ("text: a number", text(b"7"), "wrong_type"),
        ("text: a list", text(b'["a"]'), "wrong_type"),
        ("text: null", text(b"null"), "unknown_schema"),
        ("text: empty", text(b'""'), "empty"),
        ("text: a space", text(b'" "'), "empty"),
        ("text: NUL as an escape", text(rb'"\u0000"'), KEPT),
        ("text: NUL", text(b'"\x00"'), "not_json"),
        ("text: half a pair", text(rb'"\ud800"'), "not_utf8"),
        ("text: a control token", text(b'"a<|im_end|>b"'), KEPT),
        ("text: separators", text('"a\u2028b\u2029c\x85d"'.encode()), KEPT),
        ("text: a key twice", text(b'"a"', row=b',"text":"b"'), "duplicate_key"),
        ("text: 100,000 words", text(b'"' + b"word " * 100_000 + b'"'), KEPT),
    )
]

GOOD: dict[str, bytes] = {
    "messages": chat(b'"answer %d"', user=b'"question %d"'),
    "sharegpt": b'{"conversations":[{"from":"human","value":"question %d"},{"from":"gpt","value":"answer %d"}]}',
    "alpaca": _alpaca(b'"answer %d"', b'"question %d"'),
    "completion": _completion(b'" answer %d"', b'"question %d"'),
    "text": text(b'"question %d, answer %d"'),
}
"""A row that nothing is wrong with, with places for two numbers."""

HOSTILE: dict[str, list[Row]] = {
    "messages": MESSAGES,
    "sharegpt": SHAREGPT,
    "alpaca": ALPACA,
    "completion": COMPLETION,
    "text": TEXT,
}
