"""Two trees: all ranks' stacks merged, and who waits for whom."""

from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from hangdoc.diagnose import merged
from hangdoc.diagnose import words as phrases
from hangdoc.diagnose.model import Rank
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
    """Causes at the root, below each the classes of ranks that wait for it."""

    def __init__(self) -> None:
        super().__init__("waits")

    def show(self, scene: Scene) -> None:
        """Paint it."""
        run = scene.run
        waiting = phrases.classes(run.waiting())
        picture = [[(r.rank, r.state, r.where) for r in group] for group in waiting], sorted(run.causes)
        if not self.grow((picture, scene.culprits)):
            return
        if not waiting:
            self.root.add_leaf(Text("Nobody waits for another rank.", style="green"))
            return
        causes = phrases.classes([run.ranks[rank] for rank in sorted(run.causes) if rank in run.ranks])
        for group in causes:
            self._add(self.root, group, waiting, scene, frozenset())
        unseen = sorted(run.causes - set(run.ranks))
        if unseen:
            node = self.root.add(Text(f"{numbers(unseen)}: nobody looked at", style="magenta"), expand=True)
            for group in waiting:
                if run.waits_for[group[0].rank] & set(unseen):
                    node.add_leaf(_class(group, scene), data=group[0].rank)

    def _add(
        self,
        parent: TreeNode[int | None],
        group: list[Rank],
        waiting: list[list[Rank]],
        scene: Scene,
        above: frozenset[int],
    ) -> None:
        members = frozenset(rank.rank for rank in group)
        node = parent.add(_class(group, scene), data=group[0].rank, expand=True)
        for other in waiting:
            mine = frozenset(rank.rank for rank in other)
            if mine & (above | members):
                continue  # a cycle: it stands above already
            if scene.run.waits_for[other[0].rank] & members:
                self._add(node, other, waiting, scene, above | members)
        if not node.children:
            node.allow_expand = False


def _class(group: list[Rank], scene: Scene) -> Text:
    first = group[0]
    guilty = first.rank in scene.culprits
    text = Text.assemble((f"{phrases.ranks(rank.rank for rank in group)} ", "bold red" if guilty else "bold"))
    text.append(f"{words.LABEL_GLYPH[first.label]} ", style=words.LABEL_STYLE[first.label])
    return text.append(words.clean(f"{phrases.doing(first)} {phrases.place(first)}"))
