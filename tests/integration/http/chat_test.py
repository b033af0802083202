#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats over HTTP, at a real afdd.

    chat_test.py BIN_DIR [unittest arguments]

Goal: a chat is the prompt that its template makes of it, with the same bits. Method: a model that
is the demo model with a template. Oracle: what /tokenize, /detokenize and /v1/completions say.
"""

import json
import pathlib
import sys
import tempfile
import unittest

from chat_model import make_chat_model
from instance import Instance, events_of

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")


class ChatTest(unittest.TestCase):
    """Chats, of a model with a template. What it says is no chat: it never saw one."""

    @classmethod
    def setUpClass(cls) -> None:
        directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-chat-"))
        make_chat_model(pathlib.Path(directory))
        cls.instance = cls.enterClassContext(Instance(BIN, "--model", directory))

    def chat(self, **fields) -> tuple[int, dict]:
        status, _, body = self.instance.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20, "seed": 3,
            **fields})
        return status, json.loads(body)

    def test_prompt_is_the_rendered_conversation(self) -> None:
        """The ids are those of the template; its marks inside a message stay text."""
        messages = [{"role": "system", "content": "Be kind."},
                    {"role": "user", "content": [{"type": "text", "text": "Hi <|im_end|>"}]},
                    {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go"}]
        status, answer = self.chat(messages=messages, return_token_ids=True)
        self.assertEqual(status, 200, answer)
        ids = json.loads(self.instance.ask("POST", "/tokenize", {"messages": messages})[2])
        self.assertEqual(answer["prompt_token_ids"], ids["tokens"])
        start, end = 2047, 2046
        marks = [token for token in ids["tokens"] if token in (start, end)]
        self.assertEqual(len(marks), 9, "four messages, and the beginning of the answer")

    def test_unknown_fields_of_messages_are_listed_too(self) -> None:
        """But for those that are null: an answer that is sent back has every field there is."""
        messages = [{"role": "user", "content": "Hello", "name": "Emma"},
                    {"role": "assistant", "content": "Yes?", "refusal": None, "audio": None},
                    {"role": "user", "content": "Go", "mood": "good"}]
        status, headers, body = self.instance.ask("POST", "/v1/chat/completions", {
            "messages": messages, "max_tokens": 2, "zebra": 1})
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["x-ignored-params"], "zebra, messages[0].name, messages[2].mood")

    def test_whole_and_stream_say_the_same(self) -> None:
        status, whole = self.chat()
        self.assertEqual(status, 200, whole)
        self.assertEqual(whole["object"], "chat.completion")
        self.assertTrue(whole["id"].startswith("chatcmpl-"))
        message = whole["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        status, _, body = self.instance.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 20,
            "seed": 3, "stream": True, "stream_options": {"include_usage": True}})
        events = events_of(body)
        self.assertEqual(events[-1], "[DONE]")
        chunks = [json.loads(event) for event in events[:-1]]
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual(deltas[-1], {})
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), message["content"])
        self.assertEqual(chunks[-1]["usage"], whole["usage"])

    def test_same_bits_as_the_prompt_that_it_becomes(self) -> None:
        status, chat = self.chat(return_token_ids=True, logprobs=True, top_logprobs=2)
        self.assertEqual(status, 200, chat)
        choice = chat["choices"][0]
        status, _, body = self.instance.ask("POST", "/v1/completions", {
            "prompt": chat["prompt_token_ids"], "max_tokens": 20, "seed": 3, "logprobs": 2,
            "return_token_ids": True})
        completion = json.loads(body)["choices"][0]
        self.assertEqual(choice["token_ids"], completion["token_ids"])
        content = choice["logprobs"]["content"]
        self.assertEqual([token["logprob"] for token in content],
                         completion["logprobs"]["token_logprobs"])
        self.assertEqual([len(token["top_logprobs"]) for token in content], [2] * len(content))

    def test_end_token_of_the_template_ends_the_answer(self) -> None:
        status, answer = self.chat(logit_bias={"2046": 100})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual(answer["choices"][0]["message"]["content"], "")

    def test_refusals_name_the_field(self) -> None:
        user = {"role": "user", "content": "a"}
        for fields, param in (
                ({"messages": []}, "messages"),
                ({"messages": "a"}, "messages"),
                ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
                ({"messages": [user, {"role": "user", "content": 5}]}, "messages[1].content"),
                ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
                 "messages[0].content[0].type"),
                ({"response_format": {"type": "regex"}}, "response_format"),
                ({"tool_choice": "required"}, "tool_choice"),
                ({"tools": [5]}, "tools[0]"),
                ({"tools": [{"type": "function"}]}, "tools[0].function"),
                ({"top_logprobs": 3}, "top_logprobs"),
                ({"logprobs": 3}, "logprobs"),
                ({"functions": [{"name": "now"}]}, "functions"),
                ({"messages": [{"role": "user", "content": "a" * 50000}]}, "messages")):
            status, answer = self.chat(**fields)
            self.assertEqual(status, 400, (fields, answer))
            self.assertEqual(answer["error"]["param"], param, answer)

    def test_tools_are_shown_to_the_model(self) -> None:
        tool = {"type": "function", "function": {"name": "now", "description": "The time",
                                                 "parameters": {"type": "object"}}}
        other = {"function": {"parameters": {"z": [1, {"y": "}]", "b": "\\"}], "a": {}},
                              "name": "then"}}
        status, with_tools = self.chat(tools=[tool, other], max_tokens=1, return_token_ids=True)
        self.assertEqual(status, 200, with_tools)
        # As the client wrote them, the order of members included.
        tokens = {"tokens": with_tools["prompt_token_ids"]}
        shown = self.instance.ask("POST", "/detokenize", tokens)[2]
        self.assertIn(f"{json.dumps(tool)}\n{json.dumps(other)}", json.loads(shown)["prompt"])
        status, without = self.chat(tools=[tool], tool_choice="none", max_tokens=1)
        self.assertGreater(with_tools["usage"]["prompt_tokens"],
                           without["usage"]["prompt_tokens"] + 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
