"""The filters of secrets: texts of any length and form, from sources, command lines, environments and variables."""

from random import Random

from hangdoc import redact
from tests.hostile.fuzz.sources import made_case

_PARTS = (
    "a", "A", "1", "-", "_", ".", "/", "=", ":", " ", "\t", "\n", "\\", "'", '"', "<", ">", "@", "#", "(", "[", "{",
    "}", ",", "a.", "a=", "a:",
    "a b ", "-a ", "--a ", "a/", "://", "a://", "a:b@", "\\'", '\\"', "'a' ", '"a":', "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN", "-----END",
    "password=", "password = ", 'password("', "token ", "Bearer ", "Basic a", "authorization: ", "cookie=", "eyJ",
    "eyJaaaaaaaa.", "SG.", "sk-",
    "pypi-", "hf_", "a1", "0a", "aB1/", "é", "\0", "${", "%(", "[1,", "AKIA", "xox", "secret_", "1234567890:AA",
    "aaa1Q~", "a=b&", "a;",
    "--password ", "user:pw@", "a =", "+", "e ", "in ", "== a", "login(", "default=", "#a\n", "password: int = 12 ",
    "12", "api.telegram.org/bot",
    "AbC", "{'a':", "f'{", "x=1,", "-uroot:", "'''", "hooks.slack.com/", "a, ", "--a=", "$(", "`", "|", "&&",
)  # fmt: skip
_BEGINNINGS = ("", "'", "a=", "/", "password = ", "x = '", "--password=", "[")
_MAX_CHARACTERS = 100_000
"""The kernel's limit of one argument or variable is 128 KiB (execve(2))."""
_MAX_WORDS = 2_000


def attack_redaction(dice: Random) -> None:
    """One thing repeated, several things mixed, or Python."""
    kind = dice.random()
    if kind < 0.4:
        text = dice.choice(_PARTS) * dice.choice((100, 2_000, 20_000))
    elif kind < 0.8:
        parts = [dice.choice(_PARTS) for _ in range(dice.choice((2, 3, 10)))]
        text = "".join(parts) * dice.choice((30, 1_000, 8_000))
    else:
        text = made_case(dice).text
    text = dice.choice(_BEGINNINGS) + text[:_MAX_CHARACTERS] + dice.choice(("", "!", "'", "\0"))
    how = dice.randrange(5)
    if how == 0:
        assert isinstance(redact.source(text), str)
    elif how == 1:
        assert isinstance(redact.text(text), str)
    elif how == 2:
        assert isinstance(redact.local(dice.choice(("x", "password")), text[:4_000]), str)
    elif how == 3:
        assert isinstance(redact.argv(("python", *text.split(" ")[:_MAX_WORDS])), tuple)
    else:
        assert isinstance(redact.environment({dice.choice(("A", "DB_PASS", "ARGS")): text}), dict)
