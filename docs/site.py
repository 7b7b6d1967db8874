"""A hook of mkdocs (mkdocs.yml): adds the pages of the repository's root, and adapts links to a site that contains only docs/."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
HELPS = ROOT / "tests/unit/__snapshots__/test_helps/test_helps.txt"
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root to the site."""
    for source, target in ROOT_PAGES.items():
        files.append(File.generated(config, target, content=_fitted((ROOT / source).read_text("utf-8"), "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links that work on the site."""
    if page.file.src_uri in ROOT_PAGES.values():
        return markdown
    if page.file.src_uri == "commands.md":
        helps = HELPS.read_text("utf-8").strip().split("\n\n\n")
        markdown = markdown.replace("<!-- helps -->", "\n".join(map(_help, helps)))
    return _fitted(markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))


def _help(text: str) -> str:
    """The section with the help of one command."""
    name = re.match(r"Usage: (.*?) [\[F]", text)
    return f"## {name[1] if name else 'hangdoc'}\n\n```text\n{text.strip()}\n```\n"


def _fitted(markdown: str, folder: str) -> str:
    """Adapt the links. A link to a root page leads to its place on the site. A link to source code becomes the path of the
    file."""

    def fitted(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in ROOT_PAGES:
            here = folder.removeprefix("docs").strip("/")
            return f"[{text}]({posixpath.relpath(ROOT_PAGES[path], here or '.')}{anchor})"
        if path.startswith("docs/"):
            return link[0] if folder else f"[{text}]({path.removeprefix('docs/')}{anchor})"
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"

    return _LINK.sub(fitted, markdown)
