# SPDX-License-Identifier: Apache-2.0
"""What other servers do with the fields and endpoints of serving_fields.py; for docs/serving.md.

Not tried, but read in the sources that PEERS names, in November 2026. "works": a request with
the field is served, and the field is used (one that has no effect by its meaning, as `user`, is
taken). "refused": answered with an error. "not there": taken and without effect, or 404. "unknown":
not established by these sources; so is every row that is missing here.
"""

import dataclasses

WORKS, REFUSED, NOT_THERE, UNKNOWN = "works", "refused", "not there", "unknown"


@dataclasses.dataclass
class Peer:
    name: str
    source: str  # Where it was read, for the document.


PEERS = [
    Peer("vLLM", "protocols of completions and chats, commit d5dba2d7 of vllm-project/vllm"),
    Peer("SGLang", "protocol, commit 9b116dff of sgl-project/sglang; completions, 7190e6fe"),
    Peer("llama-server", "schema of the server, commit 23b5dbd4 of ggml-org/llama.cpp; chats, "
         "aa6192d3"),
]

ALL_WORK = (WORKS, WORKS, WORKS)
NONE_THERE = (NOT_THERE, NOT_THERE, NOT_THERE)

# By the name of the row; where two have one name, by "name: what it takes".
COMPLETION = {
    **dict.fromkeys(("model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n",
                     "stop", "ignore_eos", "presence_penalty", "frequency_penalty", "logit_bias",
                     "logprobs", "stream", "stream_options.include_usage", "user",
                     "metadata, store"), ALL_WORK),
    "seed": (WORKS, NOT_THERE, WORKS),
    "include_stop_str_in_output": (WORKS, NOT_THERE, NOT_THERE),
    "stop_token_ids": (WORKS, WORKS, NOT_THERE),
    "min_tokens": (WORKS, WORKS, NOT_THERE),
    "repetition_penalty": (WORKS, WORKS, NOT_THERE),  # llama-server: repeat_penalty.
    "echo": (WORKS, WORKS, REFUSED),
    "stream_options.continuous_usage_stats": (WORKS, NOT_THERE, NOT_THERE),
    "stream_options.include_obfuscation": (UNKNOWN, NOT_THERE, NOT_THERE),
    "return_token_ids": (WORKS, NOT_THERE, NOT_THERE),  # llama-server: return_tokens.
    "skip_special_tokens": (WORKS, WORKS, NOT_THERE),
    "add_special_tokens": (WORKS, NOT_THERE, NOT_THERE),
    "suffix": (REFUSED, WORKS, REFUSED),  # SGLang: with a template for it.
    "best_of": (NOT_THERE, NOT_THERE, REFUSED),
    "use_beam_search": (WORKS, NOT_THERE, NOT_THERE),
    "response_format": (WORKS, NOT_THERE, UNKNOWN),
    "guided_json, guided_regex, ...": NONE_THERE,  # vLLM: structured_outputs.
    "prompt_logprobs": (WORKS, NOT_THERE, NOT_THERE),
    "truncate_prompt_tokens": (WORKS, NOT_THERE, NOT_THERE),
    "service_tier": (NOT_THERE, NOT_THERE, UNKNOWN),
    "priority": (WORKS, NOT_THERE, UNKNOWN),  # vLLM: if it schedules by priority.
    "bad_words": (NOT_THERE, NOT_THERE, UNKNOWN),  # vLLM: in chats.
    "allowed_token_ids": (WORKS, NOT_THERE, UNKNOWN),
    "timeout_ms": (UNKNOWN,) * 3,
    "resumable_ms": (UNKNOWN,) * 3,
    "response_format.type": (UNKNOWN,) * 3,
    "any unknown field": NONE_THERE,
}
CHAT = {
    "all fields of completions": ("as above",) * 3,
    **dict.fromkeys(("messages", "messages[].content", "messages[].tool_calls, tool_call_id",
                     "max_tokens, max_completion_tokens", "logprobs", "top_logprobs", "tools",
                     "tool_choice", "chat_template_kwargs", "stream", "response_format"), ALL_WORK),
    # With a model that can; llama-server without its projector refuses.
    "messages[].content[].type": ALL_WORK,
    "messages[].reasoning_content": (UNKNOWN, WORKS, UNKNOWN),
    "tool_choice: required, or one function": (WORKS, WORKS, UNKNOWN),
    "parallel_tool_calls": (UNKNOWN, NOT_THERE, WORKS),
    "reasoning_effort": (WORKS, NOT_THERE, UNKNOWN),
    "verbosity": NONE_THERE,
    "prompt_cache_key, safety_identifier": NONE_THERE,
    "add_generation_prompt": (WORKS, NOT_THERE, WORKS),
    "continue_final_message": (WORKS, WORKS, UNKNOWN),
    "add_special_tokens": (WORKS, NOT_THERE, UNKNOWN),
    "functions, function_call": NONE_THERE,
    "modalities": NONE_THERE,
    "audio, prediction, web_search_options": NONE_THERE,
    "echo": (WORKS, NOT_THERE, UNKNOWN),
    "any unknown field": NONE_THERE,
}
# From their lists of routes; those that they have under another name are not counted.
ENDPOINTS = {
    **dict.fromkeys(("POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models",
                     "POST /v1/embeddings", "POST /v1/responses", "POST /tokenize",
                     "POST /detokenize", "GET /health", "GET /metrics"), ALL_WORK),
    "GET /live": NONE_THERE,
    "GET /ready": (NOT_THERE, WORKS, NOT_THERE),
    "GET /": (NOT_THERE, NOT_THERE, WORKS),
}
TABLES = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT, "endpoints": ENDPOINTS}


def peers_of(table: str, name: str, values: str = "") -> tuple[str, ...]:
    """The cells of a row, in the order of PEERS."""
    rows = TABLES[table]
    return rows.get(f"{name}: {values}") or rows.get(name) or (UNKNOWN,) * len(PEERS)


def unused_rows(table: str, rows: set[tuple[str, str]]) -> list[str]:
    """What is told here of rows that the table does not have: a name has changed."""
    known = {name for name, _ in rows} | {f"{name}: {values}" for name, values in rows}
    return sorted(set(TABLES[table]) - known)
