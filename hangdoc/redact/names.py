"""Which names indicate secrets: `MY_PASS`, `apiKey`, `--hf-token`, `cfg.password`, `X-Auth-Token`."""

from functools import lru_cache

from hangdoc.regex import regex

NONE, SOFT, HARD = 0, 1, 2
"""How certainly a name indicates a secret. Values of SOFT names (`token`, `key`, `auth`) may also be numbers, paths and tensors,
which are kept. Of a HARD name (`password`, `api_key`), only `None`, a flag or an empty value is kept."""

_WORDS = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

# Matched against the words of a name in lower case, joined by `_`.
_HARD = regex(
    r"(?:^|_)(?:"
    r"pass(?:word|wd|phrase|code|key)?s?|pwd|psw|secrets?|credentials?|creds?|apikeys?|authkey|bearer|jwt|sas|dsn|totp"
    r"|(?:api|access|account|admin|aes|app|auth|client|consumer|deploy|encryption|hmac|license|master|private|refresh|root|rsa"
    r"|secret|service|session|shared|signing|ssh|storage|subscription|webhook)_(?:key|secret|token|password)s?"
    r"|conn(?:ection)?_?str(?:ing)?|session_id"
    r"|(?:pin|otp|mfa|tan|tfa|unlock|verification|recovery|backup|security)_?(?:code|number|no|value|key|phrase|answer)s?|seed_phrase|mnemonic"
    r")(?:_|$)|(?:^|_)(?:pin|otp|pw|mfa)$|_pat$"
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


@lru_cache(1024)
def secrecy(name: str) -> int:
    """NONE, SOFT or HARD. In a dotted name, only the last two parts count: the object and its attribute."""
    last = ".".join(name.split(".")[-2:])[:200]
    joined = "_".join(_WORDS.findall(last)).lower()
    if _HARMLESS.fullmatch(joined):
        return NONE
    if joined in ("pwd", "oldpwd"):  # a shell's working directory, or `Pwd=` in a connection string
        return SOFT
    if _HARD.search(joined) or _HARD_WITHIN.search(joined.replace("_", "")):
        return HARD
    return SOFT if _SOFT.search(joined) else NONE


def names_a_secret(name: str) -> bool:
    """Whether a variable, an option, a key or a header of this name usually contains a secret."""
    return secrecy(name) != NONE
