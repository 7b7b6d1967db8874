"""The stacks of all ranks merged into one tree."""

from rich.style import Style
from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import NodeID, TreeNode

from hangdoc.detail import Branch
from hangdoc.phrases import do, duration, numbers, ranks, shorten
from hangdoc.reasoning.views.detail import merge_stacks
from hangdoc.render import words
from hangdoc.snapshot import Frame
from hangdoc_tui.places import stack_age
from hangdoc_tui.view_model import ViewModel

_LEAST_HEAD = 24
"""Cells that the beginning of a label has beside its end, which is cut first in a narrower terminal."""


class GrowingTree(Tree[int | None]):
    """A tree that is rebuilt only when it changed, so that folded branches stay folded."""

    def __init__(self, name: str) -> None:
        self._ends: dict[NodeID, int] = {}
        """How many characters at the end of a label are not cut where there is room for them."""
        super().__init__(Text(name), id=name)
        self.show_root = False
        self._shown: object = None

    def render_label(self, node: TreeNode[int | None], base_style: Style, style: Style) -> Text:
        """The label of a node as it fits: the tree is never wider than its view."""
        label = super().render_label(node, base_style, style)
        kept, depth = self._ends.get(node.id, 0), 0
        while node.parent is not None:
            node, depth = node.parent, depth + 1
        room = max(8, self.size.width - self.guide_depth * max(0, depth - 1))
        head, end = label.divide([len(label) - kept]) if kept and room - kept >= _LEAST_HEAD else (label, Text())
        head.truncate(room - end.cell_len, overflow="ellipsis")
        return head.append_text(end)

    def grow(self, content: object) -> bool:
        """Whether `content` is new. If so, the tree is now empty and must be filled."""
        if content == self._shown:
            return False
        self._shown = content
        self._ends.clear()
        self.clear()
        return True


class StackTree(GrowingTree):
    """The prefix tree of all ranks' stacks with the ranks in each branch."""

    def __init__(self) -> None:
        super().__init__("merged")
        self.native = False

    def show(self, model: ViewModel) -> None:
        """Draw it."""
        tree = merge_stacks(model.run.ranks.values(), native=self.native)
        read = {number for number, rank in model.run.ranks.items() if rank.thread is not None}
        old = [view for view in model.job.ranks if view.rank in read and stack_age(view) is not None]
        if self.grow((tree, model.culprits, tuple((view.rank, stack_age(view)) for view in old))):
            if old:
                oldest = max(view.stack_seconds_ago or 0.0 for view in old)
                who = ranks(view.rank for view in old)
                self.root.add_leaf(Text(f"stacks of up to {duration(oldest)} ago: {who}", style="dim"))
            for branch in tree.branches:
                self._add(self.root, branch, model.culprits)
            without = [rank for rank in tree.ranks if not any(rank in branch.ranks for branch in tree.branches)]
            moving = [view.rank for view in model.job.ranks if view.rank in without and words.moves(view)]
            if moving:
                verbs = (
                    "moves, so it is not paused for its stack",
                    "move, so they are not paused for their stacks",
                )
                self.root.add_leaf(Text(f"not read: {do(moving, *verbs)}", style="dim"))
            if unread := [rank for rank in without if rank not in moving]:
                self.root.add_leaf(Text(f"no stack: {numbers(unread)}", style="magenta"))

    def _add(self, parent: TreeNode[int | None], branch: Branch, culprits: tuple[int, ...]) -> None:
        is_culprit = len(branch.ranks) <= len(culprits) and set(branch.ranks) <= set(culprits)
        who = Text(f"[{numbers(branch.ranks)}] ", style=words.CULPRIT_STYLE if is_culprit else "bold")
        first, *rest = branch.frames
        shown = [frame for frame in rest if not frame.library or frame is rest[-1]]
        hidden = len(rest) - len(shown)
        more = Text(f"  … {hidden} library frame{'s' * (hidden > 1)}" if hidden else "", style="dim")
        node = parent.add(who + _show_frame(first) + more, data=branch.ranks[0], expand=True)
        self._ends[node.id] = len(more)
        for frame in shown:  # each below the one that called it
            node = node.add(_show_frame(frame), data=branch.ranks[0], expand=True)
        node.allow_expand = bool(branch.branches)
        for below in branch.branches:
            self._add(node, below, culprits)


def _show_frame(frame: Frame) -> Text:
    text = Text(f"{words.clean(frame.function)} {words.clean(frame.file.rpartition('/')[2])}:{frame.line}",
                style="dim" if frame.library else "")  # fmt: skip
    if frame.source and not frame.library:
        text.append(f"  {shorten(words.clean(frame.source), 60)}", style="cyan")
    return text
