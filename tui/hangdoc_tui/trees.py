"""Two trees: all ranks' stacks merged, and who waits for whom."""

from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from hangdoc.diagnose import merged
from hangdoc.diagnose import words as phrases
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.model import Class
from hangdoc.phrases import numbers
from hangdoc.render import words
from hangdoc.snapshot import Frame
from hangdoc_tui.scene import Scene

Label = tuple[Text, int | None]
"""What a node says, and the rank that it stands for."""


class GrowingTree(Tree[int | None]):
    """A tree that is rebuilt only when it changed, so that what a person has folded stays folded."""

    def __init__(self, name: str) -> None:
        super().__init__(Text(name), id=name)
        self.show_root = False
        self._shown: object = None

    def grow(self, what: object) -> bool:
        """Whether `what` is new; then the tree is empty and waits to be filled."""
        if what == self._shown:
            return False
        self._shown = what
        self.clear()
        return True


class StackTree(GrowingTree):
    """The prefix tree of all ranks' stacks with the ranks in each branch."""

    def __init__(self) -> None:
        super().__init__("merged")
        self.native = False

    def show(self, scene: Scene) -> None:
        """Paint it."""
        tree = merged.stacks(scene.run.ranks.values(), native=self.native)
        if self.grow((tree, scene.culprits)):
            for branch in tree.branches:
                self._add(self.root, branch, scene.culprits)
            mute = [rank for rank in tree.ranks if not any(rank in branch.ranks for branch in tree.branches)]
            if mute:
                self.root.add_leaf(Text(f"no stack: {numbers(mute)}", style="magenta"))

    def _add(self, parent: TreeNode[int | None], branch: merged.Branch, culprits: tuple[int, ...]) -> None:
        guilty = len(branch.ranks) <= len(culprits) and set(branch.ranks) <= set(culprits)
        who = Text(f"[{numbers(branch.ranks)}] ", style="bold red" if guilty else "bold")
        first, *rest = branch.frames
        node = parent.add(who + _frame(first), data=branch.ranks[0], expand=True, allow_expand=True)
        for frame in rest:
            if not frame.library or frame is rest[-1]:
                node.add_leaf(_frame(frame), data=branch.ranks[0])
        hidden = sum(frame.library for frame in rest[:-1])
        if hidden:
            node.set_label(node.label + Text(f"  … {hidden} library frames", style="dim"))  # type: ignore[operator]
        for below in branch.branches:
            self._add(node, below, culprits)


def _frame(frame: Frame) -> Text:
    text = Text(f"{words.clean(frame.function)} {words.clean(frame.file.rpartition('/')[2])}:{frame.line}",
                style="dim" if frame.library else "")  # fmt: skip
    if frame.source and not frame.library:
        text.append(f"  {words.clean(frame.source)[:60]}", style="cyan")
    return text


class WaitTree(GrowingTree):
    """What holds up the run: each blockage once, with the ranks at its end and below them those that wait."""

    def __init__(self) -> None:
        super().__init__("waits")

    def show(self, scene: Scene) -> None:
        """Paint it."""
        run = scene.run
        picture = [
            (
                blockage.kind.NAME,
                blockage.blamed,
                [(one.ranks, one.first.state, one.first.where) for one in _all(blockage)],
            )
            for blockage in run.blockages
        ]
        if not self.grow((picture, scene.culprits)):
            return
        if not run.blockages:
            self.root.add_leaf(Text("Nobody waits for another rank.", style="green"))
        for blockage in run.blockages:
            self._add(blockage, scene)

    def _add(self, blockage: Blockage, scene: Scene) -> None:
        blamed = set(blockage.blamed)
        ends = [one for one in blockage.at if blamed & set(one.ranks) or not one.first.waits] or list(blockage.at)
        rest = [one for one in _all(blockage) if one not in ends]
        nodes = [self.root.add(_class(one, scene), data=one.ranks[0], expand=True) for one in ends]
        if not nodes and blockage.culprits:
            nodes = [
                self.root.add(Text(f"{numbers(blockage.culprits)}: nobody looked at", style="magenta"), expand=True)
            ]
        for one in rest if nodes else ():
            nodes[-1].add_leaf(_class(one, scene), data=one.ranks[0])
        for node in nodes:
            node.allow_expand = bool(node.children)


def _all(blockage: Blockage) -> tuple[Class, ...]:
    return (*blockage.at, *blockage.waiting)


def _class(one: Class, scene: Scene) -> Text:
    first = one.first
    guilty = first.rank in scene.culprits
    text = Text.assemble((f"{phrases.ranks(one.ranks)} ", "bold red" if guilty else "bold"))
    text.append(f"{words.LABEL_GLYPH[first.label]} ", style=words.LABEL_STYLE[first.label])
    return text.append(words.clean(f"{phrases.doing(first)} {phrases.place(first)}"))
