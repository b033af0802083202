#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries every endpoint of the OpenAI API for text, every field of its requests, and vLLM's further
ones; beside them stands what other servers do (serving_peers.py).

    serving_fields.py BIN_DIR            the table of docs/serving.md is what trying gives
    serving_fields.py BIN_DIR --write    writes it

Each row of FIELDS is a field, a request with it, and what the answer must show for "works". A field
is "refused" if the answer is a 400 that names it and says unsupported_parameter, "not there" if it
is listed in X-Ignored-Params. Anything else fails. `expected` is what a row must be, so that a
field cannot cease to work by writing the table anew.
"""

import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable

from chat_model import make_chat_model
from instance import Instance, events_of
from serving_peers import PEERS, peers_of, unused_rows

DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs/serving.md"
BEGIN = "<!-- begin: written by tests/integration/http/serving_fields.py -->\n"
END = "<!-- end -->\n"

WORKS, REFUSED, NOT_THERE = "works", "refused", "not there"


@dataclasses.dataclass
class Field:
    name: str
    values: str  # What it takes, for the reader.
    request: dict
    shows: Callable[[dict], bool] = lambda answer: True
    expected: str = WORKS
    param: str = ""  # Where an error names another field.


def text(answer: dict) -> str:
    return answer["choices"][0]["text"]


def ids(answer: dict) -> list[int]:
    return answer["choices"][0]["token_ids"]


YES_OR_NO = {"type": "json_schema",
             "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}

# Beside these: max_tokens 12, temperature 0, return_token_ids.
COMPLETION = [
    Field("model", "the served name, or its directory", {"model": "demo_model"}),
    Field("prompt", "text, token ids, or an array of either", {"prompt": ["a", [3, 4]]},
          lambda a: len(a["choices"]) == 2),
    Field("max_tokens", "1 to rest of context; 0 with `echo`; unset: 16", {"max_tokens": 3},
          lambda a: a["usage"]["completion_tokens"] == 3),
    Field("temperature", "0 to 2", {"temperature": 2, "seed": 1, "top_p": 1},
          lambda a: text(a) != GREEDY["text"]),
    Field("top_p", "above 0, to 1", {"temperature": 2, "top_p": 1e-6, "seed": 1},
          lambda a: text(a) == GREEDY["text"]),
    Field("top_k", "-1 or 0: all", {"temperature": 2, "top_k": 1, "seed": 1},
          lambda a: text(a) == GREEDY["text"]),
    Field("min_p", "0 to 1", {"temperature": 2, "min_p": 1, "seed": 1, "top_p": 1},
          lambda a: text(a) == GREEDY["text"]),
    Field("seed", "any integer of 64 bits, signed or not", {"temperature": 1, "seed": 5},
          lambda a: text(a) == text(ASK({"temperature": 1, "seed": 5}))),
    Field("n", "1 to 16", {"n": 3, "temperature": 1, "seed": 5},
          lambda a: len({choice["text"] for choice in a["choices"]}) == 3),
    Field("stop", "a string, or up to 16", {"stop": ["zzz", " the"]},
          lambda a: " the" not in text(a) and a["choices"][0]["finish_reason"] == "stop"
          and a["choices"][0]["stop_reason"] == " the"),
    Field("include_stop_str_in_output", "true, false",
          {"stop": [" the"], "include_stop_str_in_output": True},
          lambda a: text(a).endswith(" the")),
    Field("stop_token_ids", "up to 128", {"stop_token_ids": [-1]},
          lambda a: a["choices"][0]["stop_reason"] == GREEDY["token_ids"][2]),
    Field("min_tokens", "0 to `max_tokens`", {"stop_token_ids": [-1], "min_tokens": 8},
          lambda a: len(ids(a)) >= 8),
    Field("ignore_eos", "true, false", {"logit_bias": {"1": 100}, "ignore_eos": True},
          lambda a: len(ids(a)) == 12),
    Field("timeout_ms", "0: `request_timeout_ms`", {"timeout_ms": 600000}),
    Field("resumable_ms", "streams only; 0: not resumable", {"resumable_ms": 1000, "stream": True},
          lambda a: a["events"] == 13),
    Field("presence_penalty", "-2 to 2", {"prompt": "la la la la", "presence_penalty": 2},
          lambda a: ids(a) != ids(ASK({"prompt": "la la la la"}))),
    Field("frequency_penalty", "-2 to 2", {"prompt": "la la la la", "frequency_penalty": 2},
          lambda a: ids(a) != ids(ASK({"prompt": "la la la la"}))),
    Field("repetition_penalty", "0.01 to 100", {"prompt": "la la la la", "repetition_penalty": 2},
          lambda a: ids(a) != ids(ASK({"prompt": "la la la la"}))),
    Field("logit_bias", "up to 1024 ids, -100 to 100", {"logit_bias": {"7": 100}},
          lambda a: set(ids(a)) == {7}),
    Field("logprobs", "0 to 20 alternatives", {"logprobs": 2},
          lambda a: len(a["choices"][0]["logprobs"]["tokens"]) == 12
          and all(len(top) == 2 for top in a["choices"][0]["logprobs"]["top_logprobs"])),
    Field("echo", "true, false", {"prompt": "It was", "echo": True},
          lambda a: text(a).startswith("It was")),
    Field("stream", "true, false", {"stream": True}, lambda a: a["events"] == 13),
    Field("stream_options.include_usage", "true, false",
          {"stream": True, "stream_options": {"include_usage": True}},
          lambda a: a["usage"]["completion_tokens"] == 12),
    Field("stream_options.continuous_usage_stats", "true, false",
          {"stream": True, "stream_options": {"continuous_usage_stats": True}},
          lambda a: a["usage"]["completion_tokens"] == 12),
    Field("stream_options.include_obfuscation", "", {
        "stream": True, "stream_options": {"include_obfuscation": True}}, expected=NOT_THERE),
    Field("return_token_ids", "true, false", {"return_token_ids": True},
          lambda a: len(ids(a)) == 12 and len(a["choices"][0]["prompt_token_ids"]) > 0),
    Field("skip_special_tokens", "true, false",
          {"logit_bias": {"0": 100}, "skip_special_tokens": False, "max_tokens": 2},
          lambda a: text(a) != ""),
    Field("user", "anything; it has no effect", {"user": "me"}),
    Field("metadata, store", "likewise", {"metadata": {}}),
    Field("service_tier", "auto, default", {"service_tier": "priority"}, expected=NOT_THERE),
    Field("priority", "0: no request comes first", {"priority": 5}, expected=NOT_THERE),
    Field("bad_words", "", {"bad_words": ["x"]}, expected=REFUSED),
    Field("allowed_token_ids", "", {"allowed_token_ids": [5]}, expected=REFUSED),
    Field("add_special_tokens", "true, false", {"add_special_tokens": False},
          lambda a: a["choices"][0]["prompt_token_ids"]
          == GREEDY["prompt_token_ids"][1:]),
    Field("suffix", "", {"suffix": "x"}, expected=REFUSED),
    Field("best_of", "1", {"best_of": 2}, expected=REFUSED),
    Field("use_beam_search", "false", {"use_beam_search": True}, expected=REFUSED),
    Field("response_format", "json_object, json_schema, text",
          {"response_format": YES_OR_NO, "max_tokens": 60},
          lambda a: json.loads(text(a)) in ("yes", "no")),
    Field("response_format.type", "others, such as `regex`", {"response_format": {"type": "regex"}},
          expected=REFUSED, param="response_format"),
    Field("guided_json, guided_regex, ...", "", {"guided_json": {}}, expected=REFUSED,
          param="guided_json"),
    Field("prompt_logprobs", "`echo` and `logprobs` say the same", {"prompt_logprobs": 1},
          expected=REFUSED),
    Field("truncate_prompt_tokens", "", {"truncate_prompt_tokens": 5}, expected=REFUSED),
    Field("any unknown field", "", {"zebra": 1}, expected=NOT_THERE, param="zebra"),
]

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "now", "description": "The time",
                                         "parameters": {"type": "object"}}}
PAINT = {"type": "function", "function": {"name": "paint", "parameters": {
    "properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"]}}}


def grows(answer: dict) -> bool:
    """The prompt has more tokens than that of the bare message."""
    return answer["usage"]["prompt_tokens"] > ASK({})["usage"]["prompt_tokens"]


# Beside these: messages, max_tokens 12, temperature 0, return_token_ids. What a completion has
# under the same name is the same code: here it is only taken.
SHARED = {"model": "demo_model", "n": 2, "seed": 5, "temperature": 1, "top_p": 0.9, "stop": ["zzz"],
          "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"7": 1}, "user": "me",
          "metadata": {}, "store": False, "service_tier": "auto"}
CHAT = [
    Field("all fields of completions", "as above", SHARED, lambda a: len(a["choices"]) == 2),
    Field("messages", "system, developer, user, assistant, tool",
          {"messages": [{"role": "system", "content": "Be kind."}, USER]}, grows),
    Field("messages[].content", "text, or an array of parts that are",
          {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
          lambda a: ids(a) == ids(ASK({}))),
    Field("messages[].content[].type", "text",
          {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, expected=REFUSED,
          param="messages[0].content[0].type"),
    Field("messages[].tool_calls, tool_call_id", "assistant; tool", {"messages": [
        USER, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "noon"}]}, grows),
    Field("messages[].reasoning_content", "in assistant messages", {"messages": [
        USER, {"role": "assistant", "content": "a", "reasoning_content": "b"}, USER]}, grows),
    Field("messages[].reasoning", "the same; without the other", {"messages": [
        USER, {"role": "assistant", "content": "a", "reasoning": "b"}, USER]}, grows),
    Field("max_tokens, max_completion_tokens", "unset: rest of context",
          {"max_tokens": 9, "max_completion_tokens": 3},
          lambda a: a["usage"]["completion_tokens"] <= 3),
    Field("logprobs", "true, false", {"logprobs": True},
          lambda a: len(a["choices"][0]["logprobs"]["content"]) == len(ids(a))),
    Field("top_logprobs", "0 to 20", {"logprobs": True, "top_logprobs": 3},
          lambda a: all(len(token["top_logprobs"]) == 3
                        for token in a["choices"][0]["logprobs"]["content"])),
    Field("tools", "functions, if the template supports tools", {"tools": [TOOL]}, grows),
    Field("tool_choice", "auto, none", {"tools": [TOOL], "tool_choice": "none"},
          lambda a: not grows(a)),
    Field("tool_choice", "required, or one function",
          {"tools": [PAINT], "tool_choice": "required", "max_tokens": 200},
          lambda a: a["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "paint"
          and a["choices"][0]["finish_reason"] == "tool_calls"),
    Field("parallel_tool_calls", "true, false", {"parallel_tool_calls": False},
          lambda a: ids(a) == ids(ASK({}))),
    Field("chat_template_kwargs", "`enable_thinking` or `thinking`",
          {"chat_template_kwargs": {"enable_thinking": False}}, grows),
    Field("chat_template_kwargs", "others, such as `clear_thinking`",
          {"chat_template_kwargs": {"clear_thinking": False}}, expected=NOT_THERE,
          param="chat_template_kwargs.clear_thinking"),
    Field("continue_final_message", "false", {"continue_final_message": True}, expected=REFUSED),
    Field("add_special_tokens", "false: the template has them", {"add_special_tokens": False},
          lambda a: ids(a) == ids(ASK({}))),
    Field("add_generation_prompt", "true, false", {"add_generation_prompt": False},
          lambda a: not grows(a)),
    Field("stream", "true, false", {"stream": True}, lambda a: a["events"] > 2),
    Field("response_format", "json_object, json_schema, text",
          {"response_format": YES_OR_NO, "max_tokens": 60},
          lambda a: json.loads(a["choices"][0]["message"]["content"]) in ("yes", "no")),
    Field("reasoning_effort", "gpt-oss: low, medium, high; else", {"reasoning_effort": "high"},
          expected=NOT_THERE),
    Field("verbosity", "", {"verbosity": "low"}, expected=NOT_THERE),
    Field("prompt_cache_key, safety_identifier", "",
          {"prompt_cache_key": "a", "safety_identifier": "b"}, expected=NOT_THERE),
    Field("functions, function_call", "", {"functions": [TOOL]}, expected=REFUSED),
    Field("modalities", "text", {"modalities": ["audio"]}, expected=REFUSED),
    Field("audio, prediction, web_search_options", "", {"audio": {"voice": "a"}},
          expected=REFUSED),
    Field("echo", "false", {"echo": True}, expected=REFUSED),
    Field("any unknown field", "", {"zebra": 1}, expected=NOT_THERE, param="zebra"),
]

COMMON = {"max_tokens": 12, "temperature": 0, "return_token_ids": True}
ENDPOINTS = [
    ("/v1/completions", {**COMMON, "prompt": "It was a fine morning, and"}, COMPLETION),
    ("/v1/chat/completions", {**COMMON, "messages": [USER]}, CHAT),
]

# What answers, and what says 404.
ROUTES = [
    ("POST /v1/completions", {"prompt": "a", "max_tokens": 1}, WORKS),
    ("POST /v1/chat/completions", {"messages": [USER], "max_tokens": 1}, WORKS),
    ("GET /v1/models", None, WORKS),
    ("GET /v1/models/demo_model", None, WORKS),
    ("POST /v1/embeddings", {"input": "a"}, NOT_THERE),
    ("POST /v1/responses", {"input": "a"}, NOT_THERE),
    ("POST /tokenize", {"prompt": "a"}, WORKS),
    ("POST /detokenize", {"tokens": [3]}, WORKS),
    ("GET /health", None, WORKS),
    ("GET /live", None, WORKS),
    ("GET /ready", None, WORKS),
    ("GET /metrics", None, WORKS),
    ("GET /", None, WORKS),
]

GREEDY: dict = {}
ASK: Callable[[dict], dict] = lambda fields: {}


def ask(instance: Instance, path: str, base: dict, fields: dict) -> tuple[int, dict, dict]:
    """Status, headers, and the answer; of a stream its events put together."""
    request = {**base, **fields}
    if request.get("stop_token_ids") == [-1]:
        request["stop_token_ids"] = [GREEDY["token_ids"][2]]
    status, headers, body = instance.ask("POST", path, request)
    if "text/event-stream" not in headers["content-type"]:
        return status, headers, json.loads(body)
    events = [json.loads(event) for event in events_of(body)[:-1]]
    choices = [event["choices"][0] for event in events if event["choices"]]
    return status, headers, {"events": len(choices), "choices": choices,
                             "usage": events[-1].get("usage")}


def verdict_of(field: Field, status: int, headers: dict, answer: dict) -> str:
    names = [name.strip() for name in (field.param or field.name).split(",")]
    if status == 400 and answer["error"]["code"] == "unsupported_parameter":
        return REFUSED if answer["error"]["param"] in names else "refused without its name"
    if status != 200:
        return f"{status} {answer}"
    if any(name in headers.get("x-ignored-params", "").split(", ") for name in names):
        return NOT_THERE
    return WORKS if field.shows(answer) else f"without effect: {json.dumps(answer)[:1500]}"


def head_of(title: str, *columns: str) -> list[str]:
    names = [title, *columns, "afd", *(peer.name for peer in PEERS)]
    return [f"\n| {' | '.join(names)} |\n", "|---" * len(names) + "|\n"]


def try_routes(instance: Instance) -> tuple[list[str], list[str]]:
    lines, problems = head_of("endpoint"), []
    for route, request, expected in ROUTES:
        method, path = route.split()
        status = instance.ask(method, path, request)[0]
        verdict = {200: WORKS, 404: NOT_THERE}.get(status, str(status))
        if verdict != expected:
            problems.append(f"{route}: {verdict}, expected {expected}")
        lines.append(f"| `{route}` | {' | '.join([verdict, *peers_of('endpoints', route)])} |\n")
    unused = unused_rows("endpoints", {(route, "") for route, _, _ in ROUTES})
    return lines, problems + [f"serving_peers.py knows no route {name}" for name in unused]


def sources() -> list[str]:
    """Where the columns of the others are from."""
    return ["\n", *(f"* {peer.name}: {peer.source}.\n" for peer in PEERS)]


def try_fields(bin_dir: pathlib.Path) -> tuple[str, list[str]]:
    """The tables, and what is not as expected."""
    global ASK
    with (tempfile.TemporaryDirectory(prefix="afd-chat-") as directory,
          Instance(bin_dir, "--model", make_chat_model(pathlib.Path(directory)),
                   "--http-model", "demo_model") as instance):
        lines, problems = try_routes(instance)
        for path, base, fields in ENDPOINTS:
            ASK = lambda more: ask(instance, path, base, more)[2]
            GREEDY.update(ASK({})["choices"][0])
            lines += head_of(f"`{path}`", "takes")
            unused = unused_rows(path, {(field.name, field.values) for field in fields})
            problems += [f"serving_peers.py: {path} has no row {name}" for name in unused]
            for field in fields:
                verdict = verdict_of(field, *ask(instance, path, base, field.request))
                if verdict != field.expected:
                    problems.append(f"{path} {field.name}: {verdict}, expected {field.expected}")
                name = field.name if field.name.startswith(("any ", "all ")) else ", ".join(
                    f"`{part}`" if part != "..." else part for part in field.name.split(", "))
                cells = [field.values, verdict, *peers_of(path, field.name, field.values)]
                lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return "".join(lines + sources()), problems


def main() -> int:
    table, problems = try_fields(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    document = DOCUMENT.read_text(encoding="utf-8")
    before, begin, rest = document.partition(BEGIN)
    written, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{DOCUMENT}: the marks of the table are gone")
        return 1
    if sys.argv[2:] == ["--write"] and not problems:
        DOCUMENT.write_text(before + begin + table + end + after, encoding="utf-8")
    elif written != table:
        print(f"{DOCUMENT}: the table is not what trying gives; run this with --write")
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
