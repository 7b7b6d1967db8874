"""The words of the field. A text that consists of them is no secret: `bfloat16`, `all_reduce`, `train.step`, `cuda:0`.

They are the parts of names (`all_gather_into_tensor` has four) that occur in 15 or more files and in two or more of: the
standard library, torch 2.13, numpy, transformers, accelerate, lightning_fabric, huggingface_hub, filelock, tqdm and psutil;
without those that name secrets; and names of launchers, data formats, file systems, network interfaces, optimizers and models.
"""

WORDS: frozenset[str] = frozenset(
    """
abort aborted above abs absolute abspath abstract abstractmethod ac acc accelerate accelerator accept accepted
access accum accumulate accumulator acos acquire across act action activate activation activations active actual ad
adafactor adagrad adam adamw adapter adaptive add added additional addmm addr address addrs adjust adjusted af
affine after ag agent aggregate ai algorithm algorithms alias aliased aliases align aligned alignment alive all
allclose allgather alloc allocate allocated allocation allocator allow allowed alltoall along alpha already always
amax amin amp analysis analyze ancestors anchor and angle ann annealing annotate annotated annotation annotations
answer answering any ao aot apex api app append apply ar arange arch architecture archive are arg argcount argdefs
argmax argmin argparse args argsort argtypes argument arguments argv argval arr array arrays arrow artifact
artifacts as asarray ascii asdict asin assert assertion asserts assign assigned assignment assistant assume ast
astype async asyncio at atan atanh aten atexit atleast atol atom atomic atoms attach attempt attention attn attr
attribute attributes attrs audio audit author auto autocast autograd automatic aux avail available average avg avro
aware awk aws ax axes axis azure back backend backends backoff backward bad bag bar barrier bars base based baseline
basename bases bash basic batch batched batches bbox bcast be beegfs been before begin below benchmark bernoulli
bert best beta bf bfloat bfs bias biases bidirectional bilinear bin binary bind binding bins bisect bit bits bitwise
blank blend blob block blocked blocking blocks blocksize bloom bmm bn bnb body bond bool boolean bootstrap both
bound boundaries boundary bounds box boxes bp bpe branch break breaks broadcast broadcasted broken bs btl bucket
bucketize buckets budget buf buffer buffered buffering buffers bufs bufsize bug build builder built builtin builtins
busy bw bwd by bypass byref byte bytearray bytecode byteorder bytes cache cached caches caching calc calculate
calibration call callable callback callbacks called caller calls can cancel cancelled candidate candidates canonical
canonicalize cap capability capture captured capturing card case cast casting cat catch category causal cause cb cc
cdata cdf cdll ceil cell center ceph cfg ch chain chained change changed changes channel channels char character
chars charset chat check checked checker checking checkpoint checkpointing checks child children chmod choice
choices cholesky choose chr chunk chunked chunks cifs ckpt clamp class classes classification classify classmethod
clean cleanup clear cli click client clip clone cloned close closed closing closure cls cluster cm cmd cmdline cmp
cnt co coalesced coco code codes coeff coerce col collapse collate collated collator collect collection collections
collective color colored colossalai cols column columns colwise combine combined combo comm command commands comment
comments commit common comms communicate comp compare comparison compat compatibility compatible compilation compile
compiled compiler compilers compiling complete completed completion complex component components composite compress
compressed compression compressor compute computed concat concatenate concrete cond conda condition conditional conf
confidence config configs configuration configure conj conn connect connection console const constant constants
constrain constraint constraints construct constructor consts consumer cont container contains content contents
context contextlib contextmanager contexts contiguous continue continuous control conv conversion conversions
convert converted converter converters convolution coord coordinate copy copyfile core cores corners coro corpus
correct correction cos cosh cosine cost count counter counters counts covariant cp cpp cpu crc creat create created
creation creator critical cron cross csr csv ct ctl ctx ctype ctypes cu cuda cudagraphs cudnn cumprod cumsum
cumulative cur curdir curl curr current currentframe custom customize customized cut cutoff cwd cxx cycle daemon
data dataclass dataclasses dataloader dataset datasets date datetime db ddp dead deadline debug decay decide decimal
decision decl decode decoded decoder decoding decomp decompose decomposed decompositions decorator decrement dedent
dedup deep deepcopy deepspeed def default defaultdict defaults defer deferred define defined definition defs deg del
delattr delay delete deleted delitem delta denom denominator dense dep dependencies dependency dependent depends
deprecated deprecation deps depth dequant dequantize deque derive desc descending descr description descriptor
descriptors deserialize desired dest destination destroy det detach detail details detect detection determine
deterministic dev device devices devnull df dgx diag diagonal dict dictionary dicts diff difference different digest
digits dilation dim dimension dimensions dims dir direction directory dirname dirs dis disable disabled discard disk
dispatch dispatcher display dist distance distil distribute distributed distribution distutils div divide division
divisor divmod dl dll do doc docker docstr docstring docstrings document domain done dont dot dotall double down
download downloader downsample dp dpo dq draw driver drop dropout dry ds dst dt dtensor dtype dtypes dual dummy dump
dumps dunder dup duplex duplicate duplicates duration during dynamic dynamo each eager early easy edge edges effect
effective effects efficient einsum el elapsed elastic electra elem element elements elementwise elems eliminate
ellipsis ema email embd embed embedding embeddings emit empty enable enabled enc encode encoded encoder encoding end
endpoint endswith engine eno enp ens ensure enter entity entries entropy entry enum enumerate env environ
environment eof eos ep epilogue epoch epochs eps epsilon eq equal equality equals erase erased erf erfc err errno
error errors escape estimate estimator eta eth ethernet eval evaluate evaluator event events evict evicter ex exact
example examples exc except exception exceptions exchange excl exclude excluded exclusive exe exec executable
executables execute execution executor executorch exist existing exists exit exitcode exited exp expand expanded
expanduser expect expected experimental expert experts expired explanation explicit expm exponent exponential export
exported exporter exporting exposed expr expression exprs ext extend extended extension extensions external
externally extra extract extraction extractor extras eye factor factors factory fail failed failure failures fake
falcon fallback false family fast fatal faulthandler fd fdopen fds feature features feed feeder fetch fft fget field
fields fifo file filelock filename filenames fileno fileobj filepath files fill filter filtered filters
filterwarnings final finalize finalized find findall finder finditer finetune finetuning fineweb finfo finish
finished finite first firstlineno fit fix fixed flag flags flash flat flatten flattened flex flexible flip float
floating floor floordiv flop flops flow flush fma fmod fmt fn fname fnmatch fns fnuz fold folded folder follow for
forbidden force fork form format formats formatted formatter forward found fp fqn fqns fraction fragment frame
frames framework free freevars freeze freq fresh frexp from frombuffer fromkeys frozen frozenset fs fsdp fsencode
fspath fstat ftp full fullgraph fullmatch fullname fully fun func funcname funcs function functional functions
functools fuse fused fusion fusions fut future futures fw fwd fx galore gamma gate gather gathered gb gc gcd ge gelu
gemm gemma gen general generate generated generation generator generators generic get getattr getattribute getcwd
getenv getfile getframe gethostname getitem getline getopt getpid getsockname getsource getstate gettempdir getter
getvalue gguf gi git glob global globals gloo gm got gpfs gpt gpu gpus gqa grad gradient gradients grads gradscaler
graph graphs greater greedy green grid group groupdict grouped groups grpo gs gt guard guarded guards guess gz half
handle handler handlers handles hangdoc hardswish has hasattr hash hashable hashes hashlib have hdf hdfs head header
headers heads health heappop heappush heapq heartbeat height help helper helpers heuristic hex hexdigest hf hh hi
hidden hide high highest hint hints hip history hit holder home hook hooks hop horizontal host hostname hot hpc hpu
html http https httpx hub huggingface hydra iadd ib ibv id ident identifier identity idle ids idx idxs if ignore
ignorecase ignored iinfo im imag image imagenet images immutable impl implementation implemented implicit import
importer importlib imports impure in inc include includes incompatible incomplete increase increment ind indent
indented index indexed indexing indices indirect inductor inet inf infer inference inferred infiniband infinite
infinity info information infos inherit init initial initialize initialized initializer inline inner ino inp inplace
inps input inputs insert inserting inside inspect inst install installed instance instances instruction instructions
int integer interface interleave interleaved intermediate internal interp interpolate interpolation interpreter
interrupt intersection interval into ints inv invalid invalidate inverse invert invoke io ior ip ir is isabs isatty
isclass isdigit isdir isfile isfinite isfunction isinf isinstance islice islink ismethod isnan isscalar issubclass
issubdtype issubset it item itemgetter items itemsize iter iterable iterate iteration iterator iterdir iters
itertools jemalloc jit job join joint json jsonl jvp kafka keep keepdim keepdims kernel kernels key keyboard keys
keyword keywords kill kind klass known kubelet kv kw kwarg kwargs kwds label labels lamb lambda lang language large
largest lars last later launch launcher layer layers layout layouts lazy ld ldexp le leading leaf leaky leave leaves
left legacy len length lengths lens lerp less level lhs lib libname libraries library libs lift lifted like limit
limits linalg line linear linecache lineno lines linesep link linker linspace lint lion list listdir listen lists
literal live ljust llama llm llms lm lmdb ln lo load loaded loader loaders loading loads loc local locale localhost
locals location locations lock locked lockfile locks log logger loggers logging logical logit logits logs logsumexp
long longest lookup loop lora loss losses low lower lr lru ls lshift lst lstm lstrip lt lu lustre machine macros
magic main major make makedirs mamba managed manager manifest manual map mapped mapping mappings maps margin mark
marked marker markers markov mask masked masks master mat match matched matcher matches matching materialize math
matmul matrix max maximum maxlen maxsize maxsplit may maybe mb md mean median megatron mem member members memmap
memo memoize memory memoryview merge merged mesh message messages meta metaclass metadata metaseq metavar method
methods metric metrics micro mid mime min minibatch minicpm minimum minor mismatch missing mistral mix mixed mixin
mixtral mkdir mkdtemp mkpath mkstemp mlflow mlu mlx mm mmap mnist mo mock mod mode model models modes modified
modname modular module modules moe momentum monitor monotonic month more mosaicml move moveaxis movedim mp mpi mpich
mpiexec mpirun mps mro ms msg msgs msvc mtia mtime mul multi multiline multinomial multipart multiple multiplier
multiply multiprocessing musa must mutable mutated mutates mv my name named namedtuple names namespace nan nanochat
nanogpt nargs narrow native natural nb nbytes nccl nd ndarray ndim ndims ndmin ne nearest need needed needs neg
negative neginf nelement nested nesterov net network neuron never new newer newline next nfs nl nn nnodes no node
nodelist nodes noise non none nonzero noop nop norm normal normalization normalize normalized normalizer normcase
normpath not note notify now nowait np nproc npu nr ns nt null nullcontext num numa number numbers numel numerator
numeric numpy nv nvlink nvme nx obj object objects objs obs observed observer of off offline offload offloading
offset offsets ofi ok old on once one ones only onnx onnxscript op opaque open openmpi operand operands operation
operations operator operators opname ops opset opt optim optimization optimize optimized optimizer optimizers option
optional options opts or orc ord order ordered ordering orig origin original origins os other out outer output
outputs outs over overflow overlap overlapping overlay overload overloads override overrides overwrite owned owner
pack package packages packed packet pad padded padding page paged pair pairs pairwise parallel parallelism param
parameter parameters params parent parents parquet parse parsed parser part partial partition partitioner partitions
parts past pat patch patched patches path pathname paths pathsep pattern patterns pause payload pbar pbs pcie peak
peek peer peft pending per percent perf perm permission permutation permute permuted perplexity persistent pg ph
phase phi philox physical pi pick pickle pickler pid pin pinned pipe pipefs pipeline pixel pkg place placeholder
placeholders placement placements plain plan planner plans plasma plat plateau platform plugin plus pmi pmix point
pointer points policy poll poly polynomial pool pop popen popitem popleft populate port pos position positional
positions positive posix possible post postargs postprocess pow power pp ppo pprint pr pre precision precomputed
pred predicate preempt prefer preferred prefetch prefetcher prefix prefixes preflight prepare prepared prepend
preprocess present preserve preserved pretrain pretrained pretraining pretty prev previous prim primitive print
printer prior priority private prob problem probs proc process processed processes processing processor processors
prod producer product prof profile profiler profiling prog program progress proj promote promotion prompt prop
propagate propagation properties property props proto protocol provided provider proxies proxy prune pruned psutil
pt ptr public pure push put pw py pycode pytest python pytorch pytree qat qconfig qint qk qr qualified qualname
quant quantizable quantization quantize quantized quantizer query question queue queued quiet quit quote qwen radd
raise ramdisk rand randint randn random randperm range ranges rank ranks rate ratio ravel raw ray raylet rc rdma rdonly
rdwr rdzv re read readable reader readers readinto readline readlines readlink reads ready real realized realpath
reason reasons rebalance rebuild received reciprocal recompile recompute reconstruct record recorded recorder
records recurse recursion recursive recv red redirect redirects redis redistribute redpajama reduce reduced reducer
reduction reductions ref reference refresh refs reg regex region regions register registered registration registry
reinit rel relative release reload relpath relu rem remainder remaining remap remote removable remove removed
removeprefix removesuffix rename render rendezvous reorder rep repeat repeats repl replace replaced replacement
replacements replay replicate repo report repository repr req request requested requests require required
requirement requires res reserved reset reshape reshaped reshard resize resolution resolve resolved resource
resources resp response rest restart restore result results resume ret retain retrieve retry retrying return
returncode returns retval reuse rev reverse reversed revision reward rewrite rfind rgb rhs right rl rlhf rm rms
rmtree rmul rng ro roberta rocm roll rollout rollouts root roots round rounding route row rows rowwise rpartition
rpc rs rshift rsplit rsqrt rstrip rsub rsync rtol rule rules run runloop runner running runtime rv safe safetensors
sagemaker same sample sampler samples sampling sanitize save saved saver sbatch scalar scalars scale scaled scaler
scales scaling scan scatter schedule scheduled scheduler scheduling schema scheme scope score scores scratch script
scripts sdp sdpa search sec second seconds secs section sections seed seek seekable seen segment segmentation select
selected selector self semantic send sent sentence sentencepiece sentinel sep separator seq seqlen seqlens sequence
sequences sequential serializable serialization serialize serialized serializer serve server session set setattr
setdefault setitem sets setstate setter settings setup sf sft sgd sha shape shapes shard sharded sharding shards
share shared sharing shell shift shifted shlex shm short shot should show shuffle shuffler shutdown shutil side
sighup sigint sigmoid sign signal signals signatures signbit signed sigquit sigterm silu simd simple simplefilter
simplified simplify sin single singleton sinh sink size sized sizeof sizes skip skipped sleep slice slices sliding
slope slot slots slow slurm slurmd slurmstepd sm small snapshot so socat sock socket soft softmax solve soon sort
sorted sorter source sourceless sources sp space spaces span sparse sparsity spawn spec special specific specs
speech speed split splitdrive splitext splitlines splits spool sq sqlite sqrt square squeeze src srun ssd ssh ssl st
stable stack stacked stacklevel stage stages standalone standard starcoder start started starts startswith stat
state stateful statement states static statically staticmethod stats status std stderr stdin stdout stem step steps
stmt stop stopped stopping storage store stored str straggler strategies strategy stream streams strerror strftime
strict stride strided strides string stringify strings strip stripped strs struct structure structured stub style
sub subclass subclasses subfolder subgraphs submit submod submodule submodules subok subparsers subprocess subs
subscript substitute subtract subtype success such suffix suffixes suggest sum summary super support supported
supports suppress swap swiglu switch swizzle sym symbol symbolic symbols symint symlinks symmetric sync synchronize
syntax sys sysconfig system sz tab table tabulate tag tags tail take tan tanh target targets task tasks tb tcp
tcpstore teardown tell temp temperature tempfile template templates temporary tensor tensorboard tensorpipe tensors
term terminal terminate test tester testing text textwrap tf tfrecord tfrecords tgt than that the then this thread
threading threads threshold through throw tid tie tied tiktoken tile tiled tiling time timed timedelta timeout timer
times timestamp timestamps timezone timing timings tiny title tl tls tmp tmpfs tmux to tobytes tok token
tokenization tokenize tokenizer tokenizers tokens tol tolist too tool tools top topk toplevel topological torch
torchdynamo torchelastic torchrun total tp tpu tqdm trace traceable traceback traced tracer traces tracing track
tracked tracker tracking trailing train trainable trained trainer training trans transfer transform transformed
transformer transformers transforms transition translate translation translator transport transpose transposed
traverse tree trees treespec triangular trigger tril trim triple triton triu trl true truediv trunc truncate
truncation trust try ts tt tuning tup tuple tuples two tx ty typ type typed typename typer types typing ucx ufunc
uid uint ulysses uname unary unavailable unbacked unbind uncased undefined under unet unexpected unflatten unfold
unicode uniform unimplemented uninitialized union unique unit universal unix unknown unlink unpack unpacked
unpickler unquote unregister unsafe unset unspec unsqueeze unsupported untar until untyped unused unwrap unwrapped
up upcast update updated upload uploader upper upsample uri url urllib urlparse us usage use used user username
users uses using utc utf util utils uuid uv val valid validate validation vals value values var varargs variable
variables variance variant varname varnames vars vec vector venv ver verbose verbosity verify version versions veth
via video view views violation virtual visible visit visited vit viterbi vllm vlm vmap vocab void vr vt wait waiter
waiting walk wandb warmup warn warned warning warnings was watchdog weak weakref webdataset weight weighted weights
what when whence where which while whitespace width wikitext wildcard win window windows wise with within without
wlan word words work worker workers workspace world wr wrap wrapped wrapper wrappers wraps writable write writelines
writer writers writes written wronly ws xfs xgmi xla xm xml xor xpu xs yaml yarn yes zero zeros zip zipfile zlib zmq
zstd
""".split()  # noqa: SIM905
)
