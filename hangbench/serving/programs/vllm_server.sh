#!/bin/bash
# vLLM's own server with two tensor-parallel workers: vllm_server.sh PORT READY MODEL [ARGUMENT...]
# The handshake comes from a process that is no child of the server.
port=$1 ready=$2 model=$3
shift 3
roles=("API server" "engine=VLLM::EngineCore" "TP 0=Worker_TP0" "TP 1=Worker_TP1")
(python "$(dirname "$0")/ready.py" "$ready" $$ "$port" "${roles[@]}" &)
exec python -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name tiny --host 127.0.0.1 \
    --port "$port" --tensor-parallel-size 2 --dtype bfloat16 --enforce-eager --max-model-len 256 --max-num-seqs 4 "$@"
