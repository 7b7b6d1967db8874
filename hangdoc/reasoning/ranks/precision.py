"""The dtype in which a rank computes on the CPU, by evidence of use: the parameters of its model, an active autocast, or the
tensors of a torch layer. A variable or an option that only names a dtype is no evidence."""

import ast
import math
import re
from collections.abc import Iterator

from hangdoc.parse import parsed_expression, unparsed
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Rank
from hangdoc.regex import regex
from hangdoc.snapshot import Frame
from hangdoc.torch_facts import file_names

_HALF = ("bfloat16", "float16")
_PARAMETERS = regex(r"\S+\.parameters\(\) (?P<dtype>\w+)(\[(?P<count>\d{1,18})\](, \w+\[\d+\])*(?P<more>, \.\.\.)?)?")
"""With `more` it has more parameters than were read, as without `count`, which hangdoc wrote before."""
_TENSOR = regex(r"(bfloat16|float16)\[[\d, ]*\]")
_AUTOCAST = regex(r"autocast\(cpu, (bfloat16|float16)\)")
_DEFAULT = "bfloat16"
"""Of torch.autocast on a CPU."""


def find_half_precision(rank: Rank) -> tuple[str, str] | None:
    """(bfloat16 or float16, the evidence as text); None if nothing shows that the rank computes in either."""
    return next(_list_uses(rank), None)


def _list_uses(rank: Rank) -> Iterator[tuple[str, str]]:
    variables = list(observed.variables(rank.process, rank.own))
    models = [(match, local) for local in variables if (match := _PARAMETERS.fullmatch(f"{local.name} {local.text}"))]
    # The largest model is the trained one, not a layer that stays in float32 or a small copy in 16 bit. Of equal ones (a copy of
    # the whole model) the trained one is unknown, so 32 bit comes first and nothing is reported.
    for match, local in sorted(models, key=lambda model: (-_count(model[0]), model[0]["dtype"] in _HALF))[:1]:
        if match["dtype"] in _HALF:
            most = f"{int(match['count']):,}" if _count(match) < math.inf else "most of the first"
            yield match["dtype"], f"{most} elements of {local.name} are {match['dtype']}"
    for local in variables:
        if (match := _AUTOCAST.fullmatch(local.text)) is not None:
            yield match[1], f"`{local.name}` is an active autocast to {match[1]}"
    texts = {local.name: local.text for local in reversed(variables)}
    for frame in rank.own:
        for context in frame.contexts:
            if (dtype := autocast_to(context, texts)) is not None:
                yield dtype, f"line {frame.line} runs under `with {context}`"
    for frame in rank.thread.frames if rank.thread is not None else ():
        if file_names.LAYERS in frame.file and frame.function.endswith(".forward"):
            yield from _list_half_tensors(frame)


def _count(parameters: re.Match[str]) -> float:
    return math.inf if parameters["count"] is None or parameters["more"] is not None else int(parameters["count"])


def _list_half_tensors(layer: Frame) -> Iterator[tuple[str, str]]:
    for local in layer.locals:
        if (match := _TENSOR.fullmatch(local.text)) is not None:
            yield match[1], f"`{local.name}` of {layer.function} is {local.text}"


def autocast_to(context: str, texts: dict[str, str]) -> str | None:
    """The type of an enabled autocast on the CPU that `with CONTEXT` enters: torch.autocast(device_type, dtype, enabled) or
    torch.cpu.amp.autocast(enabled, dtype). None for anything else, and where an argument's value is unknown."""
    call = parsed_expression(context)
    if not isinstance(call, ast.Call):
        return None
    name = unparsed(call.func) or ""
    if name.rpartition(".")[2] != "autocast":
        return None
    of_cpu = name.endswith("cpu.amp.autocast")
    order = ("enabled", "dtype") if of_cpu else ("device_type", "dtype", "enabled")
    arguments: dict[str | None, ast.expr] = {
        **dict(zip(order, call.args, strict=False)),
        **{k.arg: k.value for k in call.keywords},
    }
    if None in arguments or (not of_cpu and _read_value(arguments.get("device_type"), texts) != "'cpu'"):
        return None
    if "enabled" in arguments and _read_value(arguments["enabled"], texts) != "True":
        return None
    dtype = _read_value(arguments["dtype"], texts) if "dtype" in arguments else f"torch.{_DEFAULT}"
    plain = (dtype or "").removeprefix("torch.")
    return plain if plain in _HALF else _DEFAULT if dtype == "None" else None


def _read_value(node: ast.expr | None, texts: dict[str, str]) -> str | None:
    """A literal, a `torch.` constant or a variable's value, as text."""
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.Name):
        text = texts.get(node.id)
        return f"'{text[1:-1]}'" if text is not None and text[:1] == '"' else text
    return unparsed(node) if isinstance(node, ast.Attribute) else None
