"""Finds secrets by their form: tokens of known services, private keys, logins in URLs, `name=value`.

The list is our own: detect-secrets takes 0.4 s to import and 0.5 ms per line, and does not handle argument lists
(docs/dependencies.md).
"""

import re
from functools import lru_cache
from itertools import pairwise

from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.regex import regex

REDACTED = "<redacted>"

# Services document these prefixes for secret scanners. A truncated token matches too, because stacks cut long texts.
_TOKENS = (
    r"A(?:KIA|SIA|BIA|CCA|ROA|IDA)[0-9A-Z]{8,}",  # AWS
    r"AIza[\w-]{16,}",  # Google
    r"ya29\.[\w.-]{8,}",
    r"GOCSPX-[\w-]{8,}",
    r"gh[pousr]_[A-Za-z0-9]{8,}",  # GitHub
    r"github_pat_\w{8,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w-]{8,}",  # GitLab
    r"glc_[\w=+/]{16,}",  # Grafana
    r"glsa_\w{16,}",
    r"hf_(?=[A-Za-z]{0,40}\d|[a-z]{0,40}[A-Z]|a{8})[A-Za-z0-9]{12,}",  # Hugging Face
    r"api_org_[A-Za-z]{16,}",
    r"wandb_v1_\w{8,}",
    r"sk-(?=[\w-]{0,60}\d)[\w-]{8,}",  # OpenAI, Anthropic, and those that follow them
    r"gsk_[A-Za-z0-9]{16,}",  # Groq
    r"pplx-[A-Za-z0-9]{16,}",
    r"xai-[A-Za-z0-9]{16,}",
    r"nvapi-[\w-]{16,}",
    r"r8_[A-Za-z0-9]{16,}",  # Replicate
    r"lsv2_(?:pt|sk)_\w{8,}",  # LangSmith
    r"tgp_v1_[\w-]{8,}",
    r"rpa_[A-Za-z0-9]{16,}",
    r"KGAT_\w{8,}",  # Kaggle
    r"dapi[0-9a-f]{16,}",  # Databricks
    r"xox[abeoprs]-[\w-]{8,}",  # Slack
    r"xapp-\d-[\w-]{8,}",
    r"npm_[A-Za-z0-9]{16,}",
    r"pypi-(?=AgE|[\w-]{0,60}\d)[\w-]{16,}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{8,}",  # Stripe
    r"pk_live_[A-Za-z0-9]{8,}",
    r"whsec_[\w=+/]{8,}",
    r"SG\.[\w-]{8,}\.[\w-]{8,}",  # SendGrid
    r"key-[0-9a-f]{32}",  # Mailgun
    r"do[opr]_v1_[0-9a-f]{16,}",  # DigitalOcean
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}",
    r"hv[sbr]\.[\w-]{16,}",  # Vault
    r"dckr_pat_[\w-]{8,}",
    r"dp\.(?:pt|st|ct|sa)\.\w{16,}",  # Doppler
    r"ATATT3[\w=-]{16,}",  # Atlassian
    r"AKC[A-Za-z0-9]{16,}",  # Artifactory
    r"NRAK-[0-9A-Z]{16,}",
    r"sntry[su]_[\w=+/]{16,}",
    r"lin_api_\w{16,}",
    r"ntn_\w{16,}",
    r"secret_[A-Za-z0-9]{32,}",
    r"figd_[\w-]{16,}",
    r"pul-[0-9a-f]{32,}",
    r"tskey-[\w-]{8,}",
    r"sq0[a-z]{3}-[\w-]{16,}",
    r"AGE-SECRET-KEY-1\w+",
    r"eyJ[\w-]{8,}(?:\.[\w-]+){1,2}",  # JSON Web Token
    r"\d{8,10}:AA[\w-]{30,}",  # Telegram
    r"\w{3}\dQ~[\w~.-]{20,}",  # Azure client secret
)
_TOKEN = regex(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})")
_KEY_BLOCK = regex(r"-----BEGIN[ A-Z]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END[^-]*-----|\Z)")
_HOOK = regex(
    r"(?P<keep>hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|api\.telegram\.org/bot)"
    r"(?!<redacted>)[^\s\"'<>]+"
)
_LOGIN = regex(r"(?P<keep>\b[a-zA-Z][\w+.-]*://)(?P<login>[^/\s\"'?#]*)@")
_LOGIN_PLAIN = regex(
    r"(?<![\w/:])(?P<keep>[\w.-]{1,40}:)(?!/|<redacted>@)[^\s:@/\"'<>{}]{3,}@(?=[A-Za-z0-9]+[\w.-]*)(?!sha256)"
)
_SCHEME = regex(
    r"(?P<keep>\b(?:Bearer|bearer|Negotiate|ApiKey)\s+)(?![{<%$])[\w.~+/=-]{6,}"
    r"|(?P<keep2>\b[Bb]asic\s+)(?=[A-Za-z+/]*[0-9=A-Z])[A-Za-z0-9+/]{8,}={0,2}"
)
_HEX = regex(r"(?<![0-9A-Za-z/])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{40}(?![0-9A-Za-z])")  # W&B and many others
_AWS_SECRET = regex(
    r"(?<![\w/+=.-])(?=[^\s]{0,39}[a-z])(?=[^\s]{0,39}[A-Z])(?=[^\s]{0,39}\d)(?!/)[A-Za-z0-9/+]{40}(?![\w/+=.-])"
)
_WORD = regex(r"[A-Za-z0-9+]{16,}")
_UUID = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAMED = regex(r"(?<![\w.-])(?P<name>[A-Za-z_-][\w.-]{0,80})\\?[\"']?[ \t]*(?:=>|==|=|:(?![:/]))[ \t]*")
_VALUE = regex(
    r"(?P<quote>\\[\"'])(?P<escaped>[\s\S]*?)(?:(?P=quote)|\Z)"
    r"|(?P<mark>[\"'])(?P<quoted>(?:\\[\s\S]|(?!(?P=mark))[^\\])*)(?:(?P=mark)|\Z)"
    r"|(?P<bare>(?:(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest|ApiKey|Negotiate)[ \t]+)?"
    r"(?:<redacted>|\$?\{[^{}]*\}|[^\s&;,\"'<>(){}\[\]\\])+)"
)
_OPTION = regex(
    r"(?<!\S)(?P<name>--?[A-Za-z][\w.-]*)(?P<sep>[ \t]+)(?P<quote>[\"']?)(?P<value>[^\s\"'-][^\s\"']*)(?P=quote)"
)
_WHOLE_LINE = regex(
    r"(?i)(?P<keep>\b(?:proxy-)?authorization|\bset-cookie|\bcookie)(?P<sep>\\?[\"']?\s*[:=]\s*\\?[\"']?)(?![{%$])[^\"'\n\\]+"
)

_MORE_WORDS = regex(r"[ \t]+\S")
_FLAGS = frozenset(
    [
        "",
        "none",
        "null",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "auto",
        "default",
        "0",
        "1",
        "?",
        REDACTED,
        "(set)",
        "***",
    ]
)
_PLACEHOLDER = regex(
    r"\$[A-Z_]{0,40}\d?|\$?\{[A-Za-z_.:!\[\]-]{0,40}\}|%\([A-Za-z_]+\)s|%s|<[A-Za-z_ -]{0,40}>|\*+|\.\.\."
)
_NUMBER = regex(r"[-+]?\d{1,12}(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PATH = regex(
    r"(?:~|\.{1,2})?/[\w.@+~,=% -]+(?:/[\w.@+~,=% -]*)*"
    r"|[\w.+-]+(?:/[\w.+-]+)*\.(?:json|ya?ml|toml|bin|pt|pem|txt|parquet|sock|idx|npy)"
)
_PLAIN_USER = regex(r"[a-z][a-z_-]{0,15}")


def random_looking(word: str) -> bool:
    """Whether letters and digits alternate as in keys and digests. In names they rarely do."""
    digits = sum(c.isdigit() for c in word)
    if digits < 2 or len(word) - digits < 2:
        return False
    kinds = [0 if c.isdigit() else 1 if c.islower() else 2 for c in word]
    switches = sum(a != b for a, b in pairwise(kinds))
    return switches * 4 >= len(word)


def is_path(value: str) -> bool:
    """Whether a text is a path without random-looking parts."""
    return (
        _PATH.fullmatch(value) is not None
        and len(value) <= 512
        and (value.count("/") > 1 or "." in value)
        and not any(random_looking(word) for word in _WORD.findall(value) if len(word) >= 20)
    )


def harmless(value: str, level: int) -> bool:
    """Whether a value may be kept if its name has this secrecy: a flag or a placeholder, or with SOFT also a number or a path."""
    plain = value.strip()
    if plain.lower() in _FLAGS or _PLACEHOLDER.fullmatch(plain):
        return True
    return level < HARD and (_NUMBER.fullmatch(plain) is not None or is_path(plain))


@lru_cache(512)
def text(value: str, *, strict: bool = False, prose: bool = False, digests: bool = False) -> str:
    """`value` without everything in it that looks like a secret.

    `strict` also removes what looks random (for arguments, variables and literals, but not paths). In `prose`, a word after the
    name of a secret and a colon is kept if the sentence continues. With `digests`, a text may have hexadecimal digests, as ids
    of runs and containers are.
    """
    if len(value) < 6:
        return value
    value = tokens(value)
    if "@" in value:
        value = _LOGIN.sub(_without_login, value)
        value = _LOGIN_PLAIN.sub(rf"\g<keep>{REDACTED}@", value)
    if "=" in value or ":" in value:
        value = _WHOLE_LINE.sub(_whole_line, value)
        value = _pairs(value, prose)
    if " -" in value or value.startswith("-"):
        value = _OPTION.sub(lambda match: _option(match, prose), value)
    if len(value) >= 16 and not digests:
        value = _HEX.sub(REDACTED, _AWS_SECRET.sub(REDACTED, value))
        if strict and not _UUID.search(value) and not is_path(value):
            value = _WORD.sub(lambda match: REDACTED if random_looking(match[0]) else match[0], value)
    return value


def tokens(value: str) -> str:
    """`value` without tokens of known services, private keys and authorization headers. No path or name matches these."""
    if "-----BEGIN" in value:  # keep the number of lines, for source code
        value = _KEY_BLOCK.sub(lambda match: REDACTED + "\n" * match[0].count("\n"), value)
    value = _TOKEN.sub(REDACTED, value)
    if "/" in value:
        value = _HOOK.sub(rf"\g<keep>{REDACTED}", value)
    if " " in value:
        value = _SCHEME.sub(lambda match: (match["keep"] or match["keep2"]) + REDACTED, value)
    return value


def _without_login(match: re.Match[str]) -> str:
    login = match["login"]
    keep = not login or login == REDACTED or _PLAIN_USER.fullmatch(login) or _PLACEHOLDER.fullmatch(login)
    return match[0] if keep else f"{match['keep']}{REDACTED}@"


def _whole_line(match: re.Match[str]) -> str:
    return match["keep"] + match["sep"] + REDACTED


def _pairs(value: str, prose: bool) -> str:
    """Redact `name=value`, `name: value` and `"name": "value"`, also inside the value of another pair."""
    kept: list[str] = []
    done = at = 0
    while (named := _NAMED.search(value, at)) is not None:
        at = named.end()
        level = secrecy(named["name"])
        if level == NONE or (match := _VALUE.match(value, at)) is None:
            continue
        bare = match["bare"]
        plain = match["escaped"] or match["quoted"] or bare or ""
        if harmless(plain, level):
            continue
        if prose and bare and ":" in named[0] and bare.isalpha() and _MORE_WORDS.match(value, match.end()):
            continue
        start, end = match.span("bare" if bare is not None else "quoted" if match["mark"] else "escaped")
        kept += [value[done:start], REDACTED, "\n" * value.count("\n", start, end)]
        done = at = end
    return "".join([*kept, value[done:]]) if kept else value


def _option(match: re.Match[str], prose: bool) -> str:
    level = secrecy(match["name"])
    if level == NONE or harmless(match["value"], level) or (prose and match["value"].strip(".,:;)").isalpha()):
        return match[0]
    return f"{match['name']}{match['sep']}{match['quote']}{REDACTED}{match['quote']}"
