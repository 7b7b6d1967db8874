"""Where the members of `ncclComm` are, by version of NCCL (src/include/comm.h).

From the debug information of NVIDIA's wheels nvidia-nccl-cu12 and -cu13, by `make nccl-layouts`: the layout does not depend on
CUDA, and hardly on the machine. A card has shown that of 2.28.9 on x86_64. Versions before 2.24 have no list of communicators.
"""

from functools import lru_cache
from typing import NamedTuple

from hangdoc.torch_facts.nccl import Version


class CommLayout(NamedTuple):
    """Offsets in bytes. `startMagic` is the first member, `endMagic` the last."""

    comm_hash: int
    """u64"""
    rank: int
    """i32"""
    n_ranks: int
    """i32"""
    cuda_dev: int
    """i32"""
    bus_id: int
    """i64"""
    node: int
    """i32"""
    n_nodes: int
    """i32"""
    op_count: int
    """u64"""
    async_result: int
    """i32, an `ncclResult_t`"""
    destroy_flag: int
    """u32"""
    revoked_flag: int | None
    """u32; None before 2.28.7"""
    graphs: int
    """i32: `localPersistentRefs`, and before 2.26 `persistentRefs`"""
    init_state: int
    """i32, an `ncclResult_t`"""
    finalize_called: int
    """bool"""
    seq_number: int
    """u64[5] (`nccl.COUNTED`)"""
    use_net_pxn: int
    """bool"""
    end_magic: int
    """u64"""


_Row = tuple[tuple[Version, ...], tuple[int | None, ...], dict[str, int]]
"""Versions, their layout on x86_64, and what is elsewhere on aarch64."""


def layout_of(version: Version, machine: str) -> CommLayout | None:
    """The layout of a version on a machine (`x86_64` or `aarch64`); None if it is not known. A version between two with the same
    layout has that layout."""
    table = _tables().get(machine, {})
    if version in table:
        return table[version]
    before = max((other for other in table if other < version), default=None)
    after = min((other for other in table if other > version), default=None)
    if before is None or after is None or table[before] != table[after]:
        return None
    return table[before]


def known_versions() -> tuple[Version, Version]:
    """The first and the last version with a known layout."""
    versions = _tables()["x86_64"]
    return min(versions), max(versions)


@lru_cache(1)
def _tables() -> dict[str, dict[Version, CommLayout]]:
    """By machine and version."""
    tables: dict[str, dict[Version, CommLayout]] = {"x86_64": {}, "aarch64": {}}
    for versions, offsets, moved in _ROWS:
        layout = CommLayout(*offsets)  # type: ignore[arg-type]
        for version in versions:
            tables["x86_64"][version] = layout
            tables["aarch64"][version] = layout._replace(**moved)
    return tables


# --- the table: `make nccl-layouts` writes what follows
_ROWS: tuple[_Row, ...] = (
    (((2, 24, 3),),
     (246944, 246952, 246956, 246960, 246984, 247132, 247136, 247216, 248500,
      248544, None, 248976, 252480, 252484, 252536, 252604, 252616),
     {}),
    (((2, 25, 1),),
     (492704, 492712, 492716, 492720, 492744, 492892, 492896, 492976, 494388,
      494432, None, 494864, 500928, 500932, 500984, 501052, 501064),
     {}),
    (((2, 26, 2), (2, 26, 5)),
     (492720, 492728, 492732, 492736, 492760, 492908, 492912, 492992, 494404,
      494448, None, 494880, 500952, 500956, 501008, 506732, 506744),
     {}),
    (((2, 27, 3), (2, 27, 5), (2, 27, 6), (2, 27, 7)),
     (1066160, 1066168, 1066172, 1066176, 1066200, 1066348, 1066352, 1066432, 1067844,
      1067888, None, 1068352, 1074456, 1074460, 1074512, 1080244, 1080312),
     {}),
    (((2, 28, 3),),
     (1066176, 1066184, 1066188, 1066192, 1066216, 1066364, 1066368, 1066472, 1069036,
      1069080, None, 1069512, 1075664, 1075668, 1075720, 1081532, 1081808),
     {}),
    (((2, 28, 7), (2, 28, 9)),
     (1066184, 1066192, 1066196, 1066200, 1066224, 1066372, 1066376, 1066480, 1069044,
      1069088, 1069092, 1069520, 1075672, 1075676, 1075728, 1082564, 1082960),
     {}),
    (((2, 29, 2), (2, 29, 3)),
     (1066704, 1066712, 1066716, 1066720, 1066744, 1066892, 1066896, 1067000, 1069564,
      1069608, 1069612, 1070088, 1076800, 1076804, 1076856, 1084396, 1084800),
     {"use_net_pxn": 1084404, "end_magic": 1084808}),
    (((2, 29, 7),),
     (1181392, 1181400, 1181404, 1181408, 1181432, 1181580, 1181584, 1181688, 1184252,
      1184296, 1184300, 1184776, 1191488, 1191492, 1191544, 1199100, 1199584),
     {"use_net_pxn": 1199108, "end_magic": 1199592}),
    (((2, 30, 3), (2, 30, 4)),
     (1181400, 1181408, 1181412, 1181416, 1181440, 1181588, 1181592, 1181696, 1184276,
      1184320, 1184324, 1184784, 1191504, 1191508, 1191560, 1199188, 1199720),
     {"use_net_pxn": 1199196, "end_magic": 1199728}),
    (((2, 30, 7),),
     (1181416, 1181424, 1181428, 1181432, 1181456, 1181604, 1181608, 1181712, 1184292,
      1184336, 1184340, 1184800, 1191520, 1191524, 1191576, 1199204, 1199736),
     {"use_net_pxn": 1199212, "end_magic": 1199744}),
    (((2, 31, 2),),
     (1181408, 1181416, 1181420, 1181424, 1181448, 1181596, 1181600, 1181712, 1185136,
      1185184, 1185188, 1185672, 1193720, 1193724, 1193776, 1195848, 1196456),
     {"use_net_pxn": 1195856, "end_magic": 1196464}),
    (((2, 32, 3),),
     (1181408, 1181416, 1181420, 1181424, 1181448, 1181608, 1181612, 1181720, 1185144,
      1185192, 1185196, 1185680, 1193744, 1193748, 1193800, 1195898, 1196528),
     {"use_net_pxn": 1195906, "end_magic": 1196536}),
)  # fmt: skip
