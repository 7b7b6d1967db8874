"""A process whose recorder of the CUDA library has calls, without a GPU: its own machine code is called, with made-up arguments.

python cuda_rank.py SYMBOLS DUMP: SYMBOLS is JSON from `recorder_symbols`. When the record is full it prints `ready` and its pid.
For the line `dump` it writes torch's own dump to the file DUMP and prints `dumped`. It imports only torch.

Arguments are as in torch/csrc/distributed/c10d/FlightRecorder.hpp and the Itanium C++ ABI. An object with a copy constructor is
passed by address, also where it is passed by value.
"""

import ctypes
import json
import os
import pickle
import struct
import sys

import torch

CALLS = 60
NEVER_RETIRED = 3
_SHARERS = 1_000
"""Of a shared string: never 0, so that its memory is never freed."""
_SHAPES = ((), (7,), (4, 5), (2, 3, 4, 5, 6), (1, 2, 1, 2, 1, 2, 1, 2, 3))
_TYPES = [
    getattr(torch, name)
    for name in (
        "float32",
        "bfloat16",
        "int64",
        "bool",
        "float8_e4m3fn",
        "complex64",
        "float8_e5m2",
        "uint16",
        "float16",
    )
    if hasattr(torch, name)
]
_OPERATIONS = ("nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 0->1", "nccl:coalesced")
_GROUPS = (("0", "default_pg"), ("5", "a data parallel group with a long name"), ("a group whose name is long", "tp"))


class _Optional(ctypes.Structure):
    """A std::optional<size_t>."""

    _fields_ = (("value", ctypes.c_uint64), ("there", ctypes.c_uint64))


class _Memory:
    """Objects of C++ that are never freed."""

    def __init__(self) -> None:
        self._kept: list[object] = []
        self._copied_strings = not torch._C._GLIBCXX_USE_CXX11_ABI
        self._allocate = ctypes.CDLL(None).malloc
        self._allocate.restype, self._allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    def put(self, raw: bytes) -> int:
        """The address of a copy of these bytes."""
        address = self._allocate(len(raw) + 1)
        ctypes.memmove(address, raw + b"\0", len(raw) + 1)
        return int(address)

    def texts(self, *texts: str) -> int:
        """The address of so many std::string, one behind the other."""
        size = 8 if self._copied_strings else 32
        address = self.put(bytes(size * len(texts)))
        for index, text in enumerate(texts):
            self._write_text(address + size * index, text.encode())
        return address

    def _write_text(self, address: int, text: bytes) -> None:
        if self._copied_strings:
            shared = self.put(struct.pack("<QQiI", len(text), len(text), _SHARERS, 0) + text)
            raw = struct.pack("<Q", shared + 24)
        elif len(text) < 16:
            raw = struct.pack("<QQ", address + 16, len(text)) + text.ljust(16, b"\0")
        else:
            raw = struct.pack("<QQQQ", self.put(text), len(text), len(text), 0)
        ctypes.memmove(address, raw, len(raw))

    def group(self, group: tuple[str, str]) -> int:
        """A std::tuple<std::string, std::string>, which libstdc++ stores backwards."""
        return self.texts(*reversed(group))

    def vector(self, numbers: list[int]) -> int:
        """A std::vector of so many 64-bit numbers."""
        first = self.put(struct.pack(f"<{len(numbers)}Q", *numbers))
        return self.put(struct.pack("<3Q", first, *[first + 8 * len(numbers)] * 2))

    def tensors(self, count: int, first: int) -> int:
        """A std::vector<at::Tensor> of tensors of ever other types and shapes."""
        tensors = [
            torch.empty(_SHAPES[(first + index) % len(_SHAPES)], dtype=_TYPES[(first + index) % len(_TYPES)])
            for index in range(count)
        ]
        self._kept.append(tensors)
        return self.vector([tensor._cdata for tensor in tensors])

    def status(self) -> int:
        """A std::shared_ptr<ProcessGroupStatus> that nobody counts."""
        size = 8 if self._copied_strings else 32
        address = self.put(bytes(24 + 3 * size + 48))
        ctypes.memmove(address, struct.pack("<3q", 11, 10, 9), 24)
        for index in range(3):
            self._write_text(address + 24 + size * index, _OPERATIONS[index].encode())
        return self.put(struct.pack("<QQ", address, 0))


def _library_base() -> int:
    """Where the CUDA library begins in this process."""
    with open("/proc/self/maps") as maps:
        words = (line.split() for line in maps)
        return next(
            int(w[0].partition("-")[0], 16) for w in words if "/libtorch_cuda.so" in w[-1] and int(w[2], 16) == 0
        )


def fill(symbols: dict[str, int]) -> None:
    """Record calls, some of which end."""
    base, memory = _library_base(), _Memory()
    recorder = ctypes.c_uint64.from_address(base + symbols["instance"]).value
    assert recorder, "the library has not made its recorder"
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    record = ctypes.PYFUNCTYPE(
        _Optional, pointer, number, pointer, number, number, number, pointer, pointer, pointer, pointer, pointer,
        ctypes.c_int64, pointer, ctypes.c_bool,
    )(base + symbols["record"])  # fmt: skip
    retire = ctypes.PYFUNCTYPE(None, pointer, _Optional, ctypes.c_bool)(base + symbols["retire"])
    for index in range(CALLS):
        call = record(
            recorder, index % 3, memory.group(_GROUPS[index % 3]), index + 1, index // 4, 2 * index,
            memory.texts(_OPERATIONS[index % 4]), memory.tensors((1, 2, 7, 0)[index % 4], index),
            memory.tensors((1, 7, 0)[index % 3], 2 * index), None, None, 600_000 + index, memory.status(), index % 4 == 2,
        )  # fmt: skip
        assert (call.value, call.there & 0xFF) == (index, 1)
        if index < CALLS - NEVER_RETIRED:
            retire(recorder, call, False)
    if "record_ranks" in symbols:
        record_ranks = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer)(base + symbols["record_ranks"])
        for index, group in enumerate(_GROUPS):
            record_ranks(recorder, memory.group(group), memory.vector(list(range(index, 8 * index + 3))))


def dump() -> dict:
    """torch's own dump, with stacks."""
    return pickle.loads(torch._C._distributed_c10d._dump_nccl_trace(True, True, False))  # noqa: S301


def main() -> None:
    """Be the process."""
    symbols, path = json.loads(sys.argv[1]), sys.argv[2]
    dump()  # the first one makes the recorder
    fill(symbols)
    print("ready", os.getpid(), flush=True)
    for _ in sys.stdin:
        whole = dump()
        with open(path, "w") as file:
            json.dump({"pid": os.getpid(), "entries": whole["entries"], "groups": whole.get("pg_config", {})}, file)
        print("dumped", flush=True)


main()
