"""Which names hold secrets: `MY_PASS`, `apiKey`, `--hf-token`, `cfg.password`, `X-Auth-Token`."""

from functools import lru_cache

from hangdoc.regex import regex

NONE, SOFT, HARD = 0, 1, 2
"""How much a name says about its value. SOFT names (`token`, `key`, `auth`) also name numbers, paths and tensors, which stay;
of a HARD one (`password`, `api_key`) only `None`, a flag or nothing at all stays."""

_WORDS = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

# Matched against the words of a name in lower case, joined by `_`.
_HARD = regex(
    r"(?:^|_)(?:"
    r"pass(?:word|wd|phrase|code|key)?s?|pwd|psw|secrets?|credentials?|creds?|apikeys?|authkey|bearer|jwt|sas|dsn|totp"
    r"|(?:api|access|account|admin|aes|app|auth|client|consumer|deploy|encryption|hmac|license|master|private|refresh|root|rsa"
    r"|secret|service|session|shared|signing|ssh|storage|subscription|webhook)_(?:key|secret|token|password)s?"
    r"|conn(?:ection)?_?str(?:ing)?|session_id"
    r")(?:_|$)|(?:^|_)(?:pin|otp|pw)$|_pat$"
)
_HARD_WITHIN = regex(
    r"passw|passphrase|secret(?!ary)|apikey|accesskey|privatekey|credential|(?:db|ssh|sql|user|my|root|admin)pass$|.pwd$"
)
_SOFT = regex(
    r"(?:^|_)(?:tokens?|o?auth\d?|authorization|authentication|cookies?|sig|signatures?|webhooks?|cert|certificate|salt)(?:_|$)"
    r"|(?:^|_)key$|[a-z]token$"
)
_HARMLESS = regex(
    r"(?:.*_)?(?:forward|backward|first|second|one|two|single|multi|num|n|by|per)_pass(?:es)?|pass_(?:id|idx|index|num|no|count|i|through)"
    r"|(?:.*_)?(?:n|num|max|min|total|per|pad|eos|bos|unk|mask|cls|sep|special|image|added)_tokens?"
    r"|(?:.*_)?tokens?_(?:id|ids|idx|index|type|types|count|counts|per|len|length|budget|seen|embedding|embeddings|dim|size)(?:_.*)?"
    r"|tokenizers_parallelism|xauthority|(?:.*_)?public_key"
)  # fmt: skip


@lru_cache(1 << 12)
def secrecy(name: str) -> int:
    """NONE, SOFT or HARD. Of a dotted name, its last two parts decide: an object's name and its attribute's."""
    last = ".".join(name.split(".")[-2:])[:200]
    joined = "_".join(_WORDS.findall(last)).lower()
    if _HARMLESS.fullmatch(joined):
        return NONE
    if joined in ("pwd", "oldpwd"):  # a shell's working directory; `Pwd=` in a connection string
        return SOFT
    if _HARD.search(joined) or _HARD_WITHIN.search(joined.replace("_", "")):
        return HARD
    return SOFT if _SOFT.search(joined) else NONE


def names_a_secret(name: str) -> bool:
    """True where a variable, an option, a key or a header of this name usually holds a secret."""
    return secrecy(name) != NONE
