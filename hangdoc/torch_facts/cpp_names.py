"""C++ names of torch, NCCL and CUDA: functions of native frames, classes by their run-time type information, symbols, libraries.

Read in torch 2.13 unless another version is given.
"""

import re

from hangdoc.regex import regex

# --- functions of native frames
OPERATIONS: tuple[tuple[re.Pattern[str], str, str | None], ...] = tuple(
    (regex(pattern), op, origin)
    for pattern, op, origin in (
        (r"c10d::Reducer::", "all_reduce", "ddp-backward"),
        (r"verify_params_across_processes", "all_gather", "ddp-init"),
        (r"broadcast_coalesced", "broadcast", "ddp-init"),
        (r"rpc::\w*RRef::toHere", "to_here", None),
        (r"monitored_?[bB]arrier", "monitored_barrier", None),
        (r"RecvWork::wait|UnboundBuffer::waitRecv", "recv", None),
        (r"SendWork::wait|UnboundBuffer::waitSend", "send", None),
        (r"reduce_scatter", "reduce_scatter", None),
        (r"all_?reduce", "all_reduce", None),
        (r"all_?gather", "all_gather", None),
        (r"all_?to_?all", "all_to_all", None),
        (r"ProcessGroup\w*::barrier|::barrier\b", "barrier", None),
        (r"ProcessGroup\w*::broadcast|ops::broadcast", "broadcast", None),
    )
)
"""A part of the name of a function, the operation that it means, and who called it where that is known. First match wins."""
SEND_OR_RECEIVE = regex(r"(Send|Recv)Work::wait|UnboundBuffer::wait(Send|Recv)")
WORK_WAIT = regex(r"c10d::(\w+::)*\w*Work\w*::(wait|synchronize)|c10d::Work::wait")
FUTURE_WAIT = regex(r"PythonFutureWrapper::wait")
"""Of an RPC in a process that uses RPC. Collectives have such futures too."""
STORE_WAIT = regex(r"c10d::\w*Store\w*::(doWait|wait|get|waitForWorkers|doGet)|waitForWorkers")
CONNECT = regex(
    r"connectFullMesh|createAndConnectAllPairs|ProcessGroupGloo::ProcessGroupGloo|ProcessGroupNCCL::\w*[cC]omm"
)
_IN_NCCL = r"\bnccl(Transport|Coll|Group|Comm|Socket)[A-Z]\w*|\bbootstrap(Recv|Send|AllGather|Barrier)\b"
IN_NCCL = regex(_IN_NCCL)
"""In NCCL itself, where the host waits for other ranks, and not for its card."""
GPU_SPIN = regex(
    r"libcuda|\bcu(Stream|Ctx|Event)Synchronize|cuda(Stream|Device|Event)Synchronize|c10::cuda::CUDAStream::synchronize|"
    + _IN_NCCL
)
"""In the driver, or in NCCL, which connects the ranks in the first call that needs a connection and polls for those that have
not made it (`bootstrapRecv` below `ncclCollPreconnect`, NCCL 2.28.9)."""
CREATES_COMMUNICATOR = regex(
    r"ncclComm(Init|Split|Shrink|Grow)|initNCCLComm|eagerConnectSingleDevice|performNocolorSplit|bootstrapInit"
    r"|^(init_process_group|_?new_group|_new_process_group|new_subgroups|split_group|_?init_device_mesh|_init_process_groups"
    r"|eager_connect_single_device|perform_nocolor_split|shrink_group)"
)
"""Functions of NCCL, of torch and of libraries that call NCCL themselves, that make communicators, or call what does."""

# --- classes, as std::type_info names them
STORE_SERVER, STORE_CLIENT = "N4c10d6detail16LibUVStoreDaemonE", "N4c10d6detail8UvClientE"
STORE_THREAD = "NSt6thread11_State_implINS_8_InvokerISt5tupleIJMN4c10d6detail16BackgroundThreadEFvvEPS5_EEEEEE"
"""What a std::thread keeps of the method that it runs: a vtable, the object, the method. The names of the store
were the same in torch 2.5, 2.9, 2.10, 2.13 and 2.14."""
RPC_AGENT, RPC_WORKER = "N5torch11distributed3rpc15TensorPipeAgentE", "N5torch11distributed3rpc10WorkerInfoE"

# --- symbols
CURRENT_RPC_AGENT = "_ZN5torch11distributed3rpc8RpcAgent16currentRpcAgent_E"
"""`RpcAgent::currentRpcAgent_`, a std::shared_ptr: the pointer to the agent comes first. In libtorch_cpu.so."""

# --- libraries
LIBTORCH_CPU = "/libtorch_cpu.so"
LIBTORCH_PYTHON = b"/libtorch_python"
PYTHON_LIBRARY = "/torch/lib/libtorch_python"
"""Where a wheel has it: the directory above is the package."""
WITH_RECORDER = regex(r"/libtorch_(cpu|cuda|hip|xpu)\b[^/]*\.so[^/]*$")
"""Those that may have a flight recorder."""
WITH_RECORDER_PREFIX = b"libtorch_"
LIBTORCH = regex(rb"/libtorch[^/]*\.so")
COMMUNICATION_LIBRARY = regex(r"/lib(torch|c10|cuda|nccl)[^/]*\.so")
"""Those whose frames say in what a thread waits."""
