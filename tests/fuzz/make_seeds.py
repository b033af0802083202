#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzzers' corpora, corpus/<name>/seed-*: valid inputs of every kind.

Findings are kept beside them as corpus/<name>/finding-*; this script leaves them alone.
"""
import base64
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
BETWEEN = b"\n----\n"


def put(name, seed, data):
    folder = HERE / "corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{seed}").write_bytes(data)


# --- protobuf, as far as it is needed here ---


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(message):
    return struct.pack("<I", len(message)) + message


def client_messages():
    sampling = field(3, field(1, 0.8) + field(2, 5) + field(3, 0.9) + field(4, 7) + field(5, 0.1))
    text = field(1, "Once upon") + field(3, 4) + sampling + field(5, 1) + field(6, 1) + field(7, 1)
    ids = field(2, field(1, b"\x01\x02\x10")) + field(3, 2)
    bodies = {2: text, 3: field(1, 1), 4: b"", 5: b"", 6: b"", 7: b"", 8: field(1, 100),
              9: field(1, "ffn") + field(2, 0), 10: b""}
    for number, body in bodies.items():
        put("client_messages", f"body{number}", frame(field(1, 1) + field(number, body)))
    put("client_messages", "ids", frame(field(1, 2) + field(2, ids)))
    several = b"".join(frame(field(1, i) + field(2, text)) for i in range(1, 5))
    put("client_messages", "several", several + frame(field(1, 9) + field(3, field(1, 2))))


def worker_messages():
    token = field(1, field(1, 1) + field(2, 104) + field(3, -1.5))
    end = field(2, field(1, 1) + field(4, 1))
    failure = field(2, field(1, 2) + field(2, 14) + field(3, "why"))
    logprobs = field(3, field(1, 2) + field(2, 1) + field(3, struct.pack("<2f", -1, -2)))
    put("worker_messages", "events",
        frame(field(3, field(4, 1) + token)) + frame(field(3, logprobs + token + end + failure)))
    put("worker_messages", "wait", frame(field(4, field(1, "waits"))) + frame(field(4, b"")))
    put("worker_messages", "hello", frame(field(1, field(1, 1) + field(3, 5) + field(4, 5))))
    put("worker_messages", "ready", frame(field(2, field(1, 4096))) + frame(field(5, field(1, 3))))
    put("worker_messages", "segment", frame(field(6, field(1, 1) + field(2, 1) + field(3, 4096))))


def cluster_messages():
    """Of a metrics segment without lanes: docs of schedule/layout/metrics_layout.h."""
    counts = struct.pack("<1392Q", *range(1392))
    beat = struct.pack("<Q2i6i", 41, 812, 1, 2, 0, 7, 41, 42, 3)
    join = (field(1, 3) + field(2, 7412) + field(3, "model") + field(4, "avx2") + field(5, 8)
            + field(9, 1 << 30) + field(10, 1))
    put("cluster_messages", "host", frame(field(1, join)) + frame(field(2, b"")))
    put("cluster_messages", "leader", frame(field(1, field(1, "demo") + field(3, 2)))
        + frame(field(2, field(1, 3) + field(2, "why"))) + frame(field(4, b"")))
    take = field(1, 1) + field(2, 0) + field(3, field(1, 5) + field(2, "model"))
    put("cluster_messages", "stand-in", frame(field(1, take)) + frame(field(3, b"")))
    sight = field(1, beat) + field(2, counts)
    put("cluster_messages", "sight", frame(field(3, sight)) + frame(field(3, field(1, beat))))
    put("cluster_messages", "ended", frame(field(2, field(4, field(1, "waits"))))
        + frame(field(4, field(1, "killed by signal 9 (Killed)"))))


def ucx_records():
    row = struct.pack("<2IQ", 3, 4, 0) + b"rows"
    refused = struct.pack("<2IQ", 1, 0xFFFFFFFF, 0) + b"\0\0\0\0"
    put("ucx_records", "two", bytes([3, 8]) + struct.pack("<I", 2) + row + refused)
    put("ucx_records", "none", bytes([3, 8]) + struct.pack("<I", 0))


def near_link():
    # A store: its length, a place (tests/fuzz/near_link_fuzzer.cc), its bytes. Length 0: a look.
    def store(place, value):
        return bytes([len(value)]) + struct.pack("<I", place << 2 | 2) + value

    head = struct.pack("<2IQ", 80, 0, 5)
    whole = store(128, head) + store(0, struct.pack("<Q", 160)) + b"\0"
    put("near_link", "message", whole)
    put("near_link", "two", whole + store(128 + 160, head) + store(0, struct.pack("<Q", 320)) + b"\0")
    put("near_link", "large", store(128, struct.pack("<2IQ", 80, 0, 1 << 31))
        + store(0, struct.pack("<Q", 4096)) + b"\0")


# --- HTTP ---


def http_request(head, body=b""):
    lines = [head, b"Host: localhost"]
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


COMPLETION = {"prompt": "abc", "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 5,
              "seed": 7, "n": 2, "stop": ["x", "yz"], "logprobs": 2, "echo": True,
              "logit_bias": {"5": -1.5}, "stop_token_ids": [9], "min_tokens": 1,
              "presence_penalty": 0.5, "repetition_penalty": 1.1, "timeout_ms": 60000,
              "return_token_ids": True, "user": "me", "zebra": None}
TOOL = {"type": "function", "function": {"name": "now", "description": "The time",
                                         "parameters": {"type": "object", "properties": {}}}}
CHAT = {"messages": [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Hi \u00e9\U0001f642"}]},
    {"role": "assistant", "content": None, "reasoning_content": "why",
     "tool_calls": [{"id": "c", "type": "function",
                     "function": {"name": "now", "arguments": "{\"a\":1}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "noon"}],
    "tools": [TOOL], "tool_choice": "auto", "max_completion_tokens": 5, "logprobs": True,
    "top_logprobs": 1, "chat_template_kwargs": {"enable_thinking": False}}
STREAM = {"prompt": [[1, 2], [3]], "stream": True, "max_tokens": 3,
          "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def http_session():
    def posts(path, *bodies):
        return b"".join(http_request(b"POST " + path + b" HTTP/1.1", json.dumps(body).encode())
                        for body in bodies)

    put("http_session", "gets", b"\x0f" + b"".join(
        http_request(b"%s %s HTTP/1.1" % (method, path))
        for method, path in ((b"GET", b"/"), (b"HEAD", b"/live"), (b"OPTIONS", b"/v1/models"),
                             (b"GET", b"/v1/models/tiny"), (b"GET", b"/metrics"),
                             (b"GET", b"/health?deep=1"), (b"GET", b"/nothing"),
                             (b"DELETE", b"/ready"))))
    put("http_session", "completions", b"\x03" + posts(b"/v1/completions", COMPLETION, STREAM))
    put("http_session", "long", b"\x0f" + posts(
        b"/v1/completions", {"prompt": "a", "max_tokens": 90, "stream": True}, {"prompt": "b"}))
    put("http_session", "chats", b"\x06" + posts(b"/v1/chat/completions", CHAT,
                                                {**CHAT, "stream": True}))
    put("http_session", "tokenizer", b"\x00" + posts(b"/tokenize", {"prompt": "abc"})
        + posts(b"/detokenize", {"tokens": [97, 98]}))
    chunks = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    put("http_session", "chunks",
        b"\x02" + chunks + b"7;a=b\r\n{\"promp\r\n7\r\nt\":\"a\"}\r\n0\r\nA: b\r\n\r\n")
    put("http_session", "continue", b"\x0f" + http_request(
        b"POST /tokenize HTTP/1.1\r\nExpect: 100-continue", b'{"prompt":"a"}'))
    old = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
    body = json.dumps(STREAM).encode()
    put("http_session", "http10", b"\x0f" + old % (len(body), body))
    put("http_session", "half", b"\x01" + posts(b"/v1/completions", COMPLETION)[:-9])
    put("http_session", "no_http", b"\x0f" + b"\x16\x03\x01\x02")


def http_body():
    bodies = [(0, COMPLETION), (0, STREAM), (1, CHAT),
              (1, {"messages": [{"role": "user", "content": "a"}], "stream": True, "stop": "x"}),
              (2, {"prompt": "abc", "add_special_tokens": False}),
              (2, {"messages": CHAT["messages"]}), (3, {"tokens": [97, 98, 256]})]
    for i, (endpoint, body) in enumerate(bodies):
        put("http_body", f"{i}", bytes([endpoint]) + json.dumps(body).encode())


# Of each form: its name, model::ToolSyntax, model::ReasoningSyntax, and a call.
CALLS = (
    ("coder", 4, 1, "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"),
    ("glm", 5, 1, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
    ("kimi", 6, 0, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"),
    ("minimax", 7, 2, '</think><minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n'
     "</invoke>\n</minimax:tool_call>"),
    ("channels", 8, 3, "<|channel|>commentary to=functions.f json<|message|>{}<|call|>"),
)


def http_events():
    text = 'a "b"\n\\é\U0001f642</é"'.encode() + b"\xc3\x00"
    logprobs = b"".join(bytes([byte]) + struct.pack("<f", -1.5) for byte in text)
    prompt = b"\x01" + struct.pack("<2f", -0.5, float("nan"))
    call = '<think>\nso</think>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'.encode()
    for name, flags, said in (("whole", 0, text), ("stream", 0b110, text),
                              ("stops", 1 << 13 | 0b10, text), ("echo", 1 << 11 | 0b1010010, logprobs),
                              ("chat", 0b111, text), ("calls", 1 << 9 | 1 << 7 | 0b11, call),
                              ("special", 1 << 15 | 0b10, b"a\0"),
                              *((name, tools << 9 | reasoning << 7 | 0b11, said.encode())
                                for name, tools, reasoning, said in CALLS)):
        put("http_events", name, struct.pack("<H", flags) + prompt + said)
    put("http_events", "lost", struct.pack("<H", 0b10) + b"\0" + bytes(8) + text)


def http_answers():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    done = b"data: [DONE]\n\n"
    chat = (b'data: {"choices":[{"delta":{"role":"assistant","content":"a"}}]}\n\n'
            b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
            b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n') + done
    ids = (b'data: {"choices":[{"text":"a","token_ids":[1],"finish_reason":"length"}]}\r\n\r\n'
           + done)
    chunked = (head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(chat) + chat
               + b"\r\n0\r\n\r\n")
    refusal = b'{"error":{"message":"no room","code":429}}'
    for name, said in (("chat", chunked), ("ids", head + b"\r\n" + ids), ("events", chat + ids),
                       ("refusal", b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n"
                        % len(refusal) + refusal)):
        put("http_answers", name, b"\x07\0\0" + said)
    deep = b'{"error":{"message":\x01\x02}}'
    for name, said in (("deep", b"HTTP/1.1 400 Bad Request\r\n\r\n" + deep),
                       ("deep-event", b"data: " + deep + b"\n\n")):
        put("http_answers", name, b"\xff" + struct.pack("<H", 40000) + said)


# --- files ---


def configuration():
    put("configuration", "small", b'model = "demo_model"\nffn_workers = 2\nspin_us = 0\n')
    put("configuration", "kinds", b'# all kinds\nmodel = "x"\ninstance = "a_1"\nspawn = false\n'
        b'router = "ffn"\ntopology = "disaggregated"\nkv_tokens = 4096\nlog_level = "warn"\n'
        b'attention_cpus = "0-1;2"\nexpert_placement = "round_robin"\nffn_policy = "all"\n')
    put("configuration", "colocated", b'model = "x"\ntopology = "colocated"\nmicro_batches = 1\n')


def model_config():
    generation = (ROOT / "demo_model/generation_config.json").read_bytes()
    for path in sorted((ROOT / "tests/model/family/released").glob("*.json")):
        put("model_config", path.stem, path.read_bytes() + BETWEEN + generation)
    put("model_config", "demo", (ROOT / "demo_model/config.json").read_bytes())


def safetensors():
    header = {"__metadata__": {"format": "pt"},
              "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
              "b.weight": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]},
              "c": {"dtype": "F8_E4M3", "shape": [4, 1, 2], "data_offsets": [16, 24]}}
    put("safetensors", "three", struct.pack("<Q", 24) + json.dumps(header).encode())
    put("safetensors", "none", struct.pack("<Q", 0) + b"{}")


def stand_ins():
    """The characters that stand for the bytes in a vocabulary of bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


def tokenizer():
    added = [{"id": 300, "content": "<|x|>", "special": True, "normalized": False}]
    levels = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": r" ?\p{L}+|\s+|\p{N}{1,3}"},
             "behavior": "Isolated", "invert": False}
    vocab = {c: i for i, c in enumerate(stand_ins())} | {"th": 256, "the": 257}
    of_bytes = {"added_tokens": added, "normalizer": {"type": "NFC"},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    split, {"type": "Digits", "individual_digits": True}, levels]},
                "post_processor": None, "decoder": {"type": "ByteLevel"},
                "model": {"type": "BPE", "vocab": vocab, "merges": ["t h", "th e"]}}
    config = {"bos_token": "<|x|>", "add_bos_token": True}
    put("tokenizer", "bytes",
        json.dumps(of_bytes).encode() + BETWEEN + json.dumps(config).encode())
    vocab = {"<unk>": 0} | {f"<0x{b:02X}>": 1 + b for b in range(256)}
    vocab |= {c: 257 + i for i, c in enumerate("▁theab")} | {"th": 280, "▁th": 281}
    of_characters = {
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None, "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<|x|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|x|>": {"id": "<|x|>", "ids": [300], "tokens": ["<|x|>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"], ["▁", "th"]],
                  "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}}
    put("tokenizer", "characters", json.dumps(of_characters, ensure_ascii=False).encode())


def tiktoken():
    tokens = [bytes([b]) for b in range(256)] + [b"th", b"the", b" the", b"12"]
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    config = {"added_tokens_decoder": {"260": {"content": "<|x|>", "special": True}},
              "bos_token": "<|x|>"}
    text = b"\n".join(lines) + b"\n"
    put("tiktoken", "all", text + BETWEEN + json.dumps(config).encode())
    put("tiktoken", "plain", text)


# --- shared memory ---


def descriptors():
    ids = [0, 7, 2147483647] * 3
    words = [1, 1, *ids] + [0] + [0] * 9  # Descriptor, acknowledged, result flags.
    lane = struct.pack("<21i", *words)
    again = struct.pack("<21i", *([2, 0, *ids] + [1] + [1] * 9))
    put("descriptors", "attention", b"\0" + lane * 4 + lane * 4 + again * 4)
    offered = struct.pack("<21i", *([1, 0, 2147483646, 3, 2147483647] + [2147483647] * 6 + [0] * 10))
    put("descriptors", "ffn", b"\1" + (lane + offered) * 8)
    put("descriptors", "extremes", b"\0" + struct.pack("<21i", -1, 2, *([-2**31] * 19)) * 8)


def schedule_context():
    common = struct.pack("<7Ii", 2, 1, 2, 2, 6, 512, 512, 0) + bytes(96)
    control = struct.pack("<i", 1) + bytes(124)
    attention = struct.pack("<4QI", 0, 16, 64, 4096, 0) + bytes(92)
    # Descriptors of 24 bytes behind each other, rows of 8 bytes at 512.
    ffn = struct.pack("<5Q", 0, 48, 512, 64, 0) + bytes(88)
    ffn += struct.pack("<8QI", 0, 8, 64, 8, 128, 8, 192, 32, 2) + bytes(60)
    context = (common + control + attention + ffn).ljust(1024, b"\0")
    assert len(context) == 1024, len(context)
    window = (struct.pack("<6i", 1, 0, 0, 1, 2, 5) + struct.pack("<6i", 1, 1, 1, 1, 2, 0)).ljust(512, b"\0")
    window = (window + bytes(range(64))).ljust(4096, b"\0")
    outputs = struct.pack("<2i", 0, 1).ljust(64, b"\0") + struct.pack("<2i", 0, 1).ljust(64, b"\0")
    outputs += bytes(64) + struct.pack("<8i", 0, 1, 2, 3, 4, 5, 0, 1)
    for choices in range(4):
        put("schedule_context", f"choices{choices}", bytes([choices]) + context + window + outputs)


def two_phase():
    session = struct.pack("<8i", 1, 0, 0, 0, 1, 3, 4, 0).ljust(128, b"\0")
    session += struct.pack("<4i", 5, 0, 4, 2).ljust(128, b"\0")
    rank = struct.pack("<3i", 1, 1, 0).ljust(128, b"\0")
    grants = struct.pack("<4q", 0, 5, 5, 9).ljust(128, b"\0")
    put("two_phase", "receive", b"\0" + session + rank + b"\0" + session + rank)
    # Words of the rank that the session never uses are as hostile as others.
    unused = struct.pack("<4q", 0, 2**48, 5, 9).ljust(128, b"\0")
    put("two_phase", "unused", b"\1" + rank + unused)
    put("two_phase", "send", b"\1" + rank + grants + b"\1" + rank + grants)


for make in (client_messages, worker_messages, cluster_messages, ucx_records, near_link,
             http_session, http_body, http_events, http_answers, configuration, model_config, safetensors,
             tokenizer, tiktoken, descriptors, schedule_context, two_phase):
    make()
