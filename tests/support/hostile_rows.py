"""Texts that would do something if they were anything but text, as rows and as the name of their file."""

HOSTILE = (
    "<script>window.ran=1</script>",
    "</script><script>window.ran=2</script>",
    "<!--<script>",
    "</style><img src=x onerror=window.ran=3>",
    "</pre></textarea></title><svg onload=window.ran=4>",
    "{{ 7 * 7 }} {% raw %} ${7*7} &lt;b&gt; &#x3c;",
    "javascript:window.ran=5",
    "turned \u202e txet \u2066, unseen \u200b\U000e0041, bell \x07, \"quoted\" and 'so'",
    "\ufffd é 世界 👩‍👩‍👧‍👦 سلام دنیا",
)
FILE_NAME = "<img src=x onerror=window.ran=6> \u202e&amp;.jsonl"
