"""Checks that texts are plain English: no odd words, no sentence that is too long. `make check` runs it.

python -m docs.prose [FILE...]

Vale and proselint were tried: Vale's package downloads its program from elsewhere, and proselint takes no words of one's own.
"""

import ast
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 40
"""Words in a sentence."""

# What nobody says, and what to write instead. Texts are matched without their code.
WORDS = {
    r"stands? still|(stood|standing) still": "makes no progress, is frozen",
    r"stands? behind": "finished the loop",
    r"stands? (between|under|above|alone|in front)": "is",
    r"in vain": "gets no reply",
    r"mend(s|ed|ing)?": "fix",
    r"told|said|unsaid": "reports, reported",
    r"stor(y|ies)": "case, cause",
    r"goes? round": "cycle",
    r"(is|are|was|were) through(?! (the|a|an|which|ssh)\b)": "has finished",
    r"comes? to nothing": "fails",
    r"everybody": "all ranks",
    r"why it does not come|does not come (about|up)|who is to blame": "why, the culprit",
    r"the patient|camps?|rubbish|mute|deeds?|dead man's switch": "a standard word",
    r"for ever": "forever",
    r"left to the": "done by",
    r"honest(y|ly)?|the opposite is shown": "a plain statement",
    r"speaks? of": "describes",
    r"(four|first|last|other three) rooms?": "stage",
    r"for instance|e\.g\.|i\.e\.": "for example, that is",
    r"whatever came|wherefrom|thereof|therein|hitherto": "the plain word",
    r"is known by|comes? on(?! top)": "is recognised by, makes progress",
    r"for somebody who|whoever": "for a caller that, the process that",
    r"left behind|handed over|hands? over": "abandoned, passes",
    r"as it stands|in its hands|stood|goes along": "unchanged, while it is traced, was",
    r"taken for granted|passe[ds] over": "assumed, skipped",
    r"(goes|go|going|went) on(?! to\b)": "continues",
    r"outlives?": "continues after the end of",
    r"what (it|he|nobody|somebody|everybody) (says|tells|knows)": "its output, its values",
}
_ODD = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), better) for pattern, better in WORDS.items()]
_MARKS = ("#!", "# noqa", "# fmt:", "# type:", "# pragma")
_CODE = re.compile(r"```.*?^\s*```|~~~.*?~~~|<!--.*?-->", re.DOTALL | re.MULTILINE)
_SPANS = re.compile(r"`[^`]*`|!?\[([^\]]*)\]\([^)]*\)|https?://\S+")
_END = re.compile(r"(?<=[.!?;])[)\"*]*\s+")

# What is clean.
PAGES = ("*.md", "docs/*.md", "docs/howto/*.md", "docs/rules/*.md")
_PARTS = (
    "agents",
    "cli",
    "commands",
    "reasoning/rules",
    "fleet",
    "launch",
    "observe",
    "preflight",
    "redact",
    "render",
    "watch",
    "watchdog",
)
CODE = (
    "hangdoc/*.py",
    "docs/*.py",
    *(f"hangdoc/{part}/*.py" for part in _PARTS),
    "tui/hangdoc_tui/*.py",
    "trainer/hangdoc_trainer/*.py",
    "hangbench/*.py",
    "hangbench/*/*.py",
    "bench/*.py",
)

Found = tuple[Path, int, str]


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Line number and words of each sentence of a Markdown text. A table's cell and a list's item end a sentence."""
    plain = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    plain = re.sub(r"(?<![|\n])\n(?=[^\n|#>*\-\d ])|(?<!\n)\n +(?=[^\s*\-\d|])", "\v", plain)  # a line continues
    line = 1
    for block in plain.split("\n"):
        at = line
        for cell in re.split(r"(?<!\\)\|", _SPANS.sub(lambda span: span[1] or "code", block)):
            yield from ((at, part.replace("\v", " ").strip()) for part in _END.split(cell) if part.strip())
        line += 1 + block.count("\v")


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each string of a program that a person may read: the docstrings, and what holds three words."""
    nodes = list(ast.walk(ast.parse(source)))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        yield (
            node.lineno,
            "".join(str(part.value) if isinstance(part, ast.Constant) else "code" for part in node.values),
        )
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) and id(node) not in parts else None
        if isinstance(text, str) and len(text.split()) >= 3:
            yield node.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment of a program. Lines of comments that follow each other are one text."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(_MARKS):
            continue
        alone = not token.line[: token.start[1]].strip()
        if block and not (alone and token.start[0] == last + 1):
            yield last - len(block) + 1, "\n".join(block)
            block = []
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    if block:
        yield last - len(block) + 1, "\n".join(block)


def faults(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong with a text: line number, and what to write instead."""
    for line, sentence in sentences(text):
        for pattern, better in _ODD:
            if (hit := pattern.search(sentence)) is not None:
                yield line, f"{hit[0]!r} is odd ({better}): {sentence[:90]}"
        if (words := len(sentence.split())) > LONGEST:
            yield line, f"a sentence of {words} words, at most {LONGEST}: {sentence[:90]}"


def of_file(path: Path) -> Iterator[Found]:
    """What is wrong in a page or a program."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from ((path, line, fault) for line, fault in faults(text))
    elif path != Path(__file__).resolve():  # which lists the words
        for first, string in (*strings(text), *comments(text)):
            yield from ((path, first + line - 1, fault) for line, fault in faults(string))


def main(arguments: list[str]) -> int:
    """Check the files, or all that are clean; 1 where something is found."""
    named = [Path(name).resolve() for name in arguments]
    clean = [path for pattern in (*PAGES, *CODE) for path in sorted(ROOT.glob(pattern))]
    paths = named or clean
    found = [one for path in paths for one in of_file(path)]
    for path, line, fault in found:
        print(f"{os.path.relpath(path, ROOT)}:{line}: {fault}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
