#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""response_format, against a real afdd with a model that has never seen JSON.

    structure_test.py BIN_DIR [unittest arguments]

Goal: an answer that ends by itself is what was asked for, whatever the model would rather say, and
it has the same bits however it comes. Method: schemas of every kind that is known, greedy and
drawn, whole and streamed, with everything that changes logits or ends a text. Oracle: a JSON parser
and a validator that look at the answer (schema_checker.py); the answers of the other door.
"""

import json
import pathlib
import sys
import tempfile
import unittest

from chat_model import make_chat_model
from instance import Instance, events_of
from schema_checker import problem_of

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PROMPT = "It was a fine morning, and the young lady"
USER = {"role": "user", "content": "Hello"}
WORD = {"type": "string", "maxLength": 12}

# Each ends: what may be long is counted.
SCHEMAS = {
    "nested": {"type": "object", "properties": {
        "name": WORD, "home": {"type": "object", "properties": {
            "street": WORD, "at": {"type": "object", "properties": {
                "x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"]}},
            "required": ["at"]}}, "required": ["name", "home"], "additionalProperties": False},
    "enum": {"type": "object", "properties": {
        "color": {"enum": ["red", "green", "deep \"blue\""]}, "n": {"enum": [1, 2.5, None, True]},
        "kind": {"const": {"a": [1]}}}, "required": ["color", "n", "kind"]},
    "arrays": {"type": "array", "minItems": 2, "maxItems": 4, "items": {
        "type": "array", "maxItems": 2, "items": {"type": "integer"}}},
    "tuple": {"type": "array", "prefixItems": [WORD, {"type": "boolean"}], "items": False,
              "minItems": 2},
    "counted text": {"type": "string", "minLength": 5, "maxLength": 30},
    "numbers": {"type": "object", "properties": {"a": {"type": "number"},
                                                 "b": {"type": "integer"}},
                "required": ["a", "b"]},
    "optional": {"type": "object", "properties": {
        "a": WORD, "b": {"type": "boolean"}, "c": {"type": ["integer", "null"]}},
        "required": ["b"]},
    "choice": {"anyOf": [{"type": "object", "properties": {"ok": {"const": True}},
                          "required": ["ok"]}, {"type": "integer"}, WORD]},
    "tree": {"$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "children": {
            "type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/leaf"}}},
        "required": ["value", "children"]}, "leaf": {"type": "object", "properties": {
            "value": {"type": "null"}}, "required": ["value"]}}, "$ref": "#/$defs/node"},
    "names outside ASCII": {"type": "object", "properties": {
        "größe": {"type": "integer"}, "名": {"enum": ["日本", "a\nb"]}},
        "required": ["größe", "名"]},
}


def of_schema(schema: dict) -> dict:
    return {"response_format": {"type": "json_schema",
                                "json_schema": {"name": "answer", "schema": schema}}}


class StructureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--stop-timeout-ms", "0", "--hang-timeout-ms", "0"))

    def ask(self, **fields) -> tuple[int, dict]:
        status, _, body = self.instance.ask("POST", "/v1/completions",
                                            {"prompt": PROMPT, "max_tokens": 400, **fields})
        return status, json.loads(body)

    def choices(self, **fields) -> list[dict]:
        status, answer = self.ask(**fields)
        self.assertEqual(status, 200, answer)
        return answer["choices"]

    def expect_valid(self, choice: dict, schema: dict) -> object:
        self.assertEqual(choice["finish_reason"], "stop", choice)
        value = json.loads(choice["text"])
        self.assertEqual(problem_of(value, schema, schema), "", choice["text"])
        return value

    def test_every_answer_is_valid(self) -> None:
        for name, schema in SCHEMAS.items():
            with self.subTest(name):
                self.expect_valid(self.choices(temperature=0, **of_schema(schema))[0], schema)
                drawn = self.choices(temperature=1.5, top_p=1, seed=5, n=4, **of_schema(schema))
                for choice in drawn:
                    self.expect_valid(choice, schema)
                self.assertGreater(len({choice["text"] for choice in drawn}), 1)

    def test_any_object(self) -> None:
        """Closing is made likely: the model would talk within a string to the end."""
        ids = json.loads(self.instance.ask("POST", "/tokenize", {"prompt": "\"}]"})[2])["tokens"]
        wish = {"response_format": {"type": "json_object"}, "seed": 2, "n": 8, "temperature": 1,
                "logit_bias": {str(token): 6 for token in ids}}
        ended = [choice for choice in self.choices(**wish) if choice["finish_reason"] == "stop"]
        self.assertGreater(len(ended), 2)
        for choice in ended:
            self.assertIsInstance(json.loads(choice["text"]), dict)

    def test_same_bits_streamed_and_over_the_socket(self) -> None:
        for name in ("nested", "choice", "counted text"):
            schema = SCHEMAS[name]
            wish = {"seed": 11, "temperature": 1, "top_p": 1, "return_token_ids": True,
                    "logprobs": 0, **of_schema(schema)}
            whole = self.choices(**wish)[0]
            status, _, body = self.instance.ask(
                "POST", "/v1/completions",
                {"prompt": PROMPT, "max_tokens": 400, "stream": True, **wish})
            self.assertEqual(status, 200, body)
            chunks = [json.loads(event)["choices"][0] for event in events_of(body)[:-1]]
            self.assertEqual("".join(chunk["text"] for chunk in chunks), whole["text"])
            self.assertEqual(sum((chunk["token_ids"] for chunk in chunks), []), whole["token_ids"])
            self.assertEqual(chunks[-1]["finish_reason"], "stop")
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                json.dump(schema, file)
                file.flush()
                by_socket = self.instance.ctl(
                    "generate", PROMPT, "--token-ids", "--max-tokens", "400", "--seed", "11",
                    "--temperature", "1", "--json-schema", file.name)
            self.assertEqual(by_socket["token_ids"], whole["token_ids"])
            self.assertEqual(by_socket["text"], whole["text"])
        by_socket = self.instance.ctl("generate", PROMPT, "--max-tokens", "60", "--json-object")
        self.assertEqual(by_socket["text"].strip()[0], "{")

    def test_a_killed_worker_is_a_pause(self) -> None:
        """kill -9 of both attention workers in mid-stream, where the text is within the document:
        the same bits to the end, which is that of the document."""
        schema = {"type": "array", "minItems": 60, "maxItems": 60, "items": WORD}
        wish = {"seed": 5, "temperature": 1, "max_tokens": 950, "prompt": [5],
                "return_token_ids": True, **of_schema(schema)}
        expected = self.choices(**wish)[0]
        self.expect_valid(expected, schema)
        num_replays = self.instance.num_replays()
        received = self.instance.stream_through_kills("/v1/completions", wish)
        chunks = [json.loads(event)["choices"][0] for event in events_of(received)[:-1]]
        self.assertEqual(sum((chunk["token_ids"] for chunk in chunks), []), expected["token_ids"])
        self.assertEqual("".join(chunk["text"] for chunk in chunks), expected["text"])
        self.assertEqual(chunks[-1]["finish_reason"], "stop")
        self.assertGreater(self.instance.num_replays(), num_replays)

    def test_what_else_ends_or_changes_a_text(self) -> None:
        schema = SCHEMAS["nested"]
        short = self.choices(max_tokens=3, temperature=0, **of_schema(schema))[0]
        self.assertEqual(short["finish_reason"], "length")
        stopped = self.choices(stop=["\"home\""], temperature=0, **of_schema(schema))[0]
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["stop_reason"], "\"home\"")
        self.assertTrue(stopped["text"].lstrip().startswith("{"))
        for wish in ({"presence_penalty": 2, "frequency_penalty": 2, "repetition_penalty": 1.5},
                     {"logit_bias": {"1": 100}}, {"logit_bias": {"7": 100, "8": 100}},
                     {"top_k": 1}, {"top_p": 0.1}, {"min_p": 0.9},
                     # Its end comes before, and nothing else may come there.
                     {"min_tokens": 390}):
            for choice in self.choices(temperature=1, seed=3, **wish, **of_schema(schema)):
                self.expect_valid(choice, schema)

    def test_stop_tokens_cut_only_where_they_are_text(self) -> None:
        """A quote is part of the document, and cuts it; a special one is no part of it."""
        quote = json.loads(self.instance.ask("POST", "/tokenize", {"prompt": "\""})[2])["tokens"]
        wish = {"temperature": 0, **of_schema(SCHEMAS["numbers"])}
        cut = self.choices(stop_token_ids=quote[-1:], **wish)[0]
        self.assertEqual((cut["finish_reason"], cut["stop_reason"]), ("stop", quote[-1]))
        self.assertEqual(cut["text"].strip(), "{")
        self.expect_valid(self.choices(stop_token_ids=[0], logit_bias={"0": 100}, **wish)[0],
                          SCHEMAS["numbers"])

    def test_log_probabilities_are_the_models_own(self) -> None:
        choice = self.choices(temperature=0, logprobs=3, return_token_ids=True,
                              **of_schema(SCHEMAS["enum"]))[0]
        logprobs = choice["logprobs"]
        self.assertEqual(len(logprobs["token_logprobs"]), len(choice["token_ids"]))
        # It would never say that by itself.
        self.assertLess(min(logprobs["token_logprobs"]), -3)
        # The three most likely ones, and the token itself where it is none of them.
        for token, own, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                   logprobs["top_logprobs"], strict=True):
            self.assertEqual(top[token], own)
            self.assertIn(len(top), (3, 4))
            self.assertTrue(len(top) == 3 or own == min(top.values()), (token, top))
        self.assertEqual(max(len(top) for top in logprobs["top_logprobs"]), 4)

    def test_refusals_name_the_field_and_the_keyword(self) -> None:
        for keyword, value in (("pattern", "a*"), ("not", {}), ("multipleOf", 2),
                               ("uniqueItems", True), ("patternProperties", {}),
                               ("propertyNames", {}), ("minProperties", 1), ("if", {}),
                               ("contains", {}), ("dependentRequired", {}),
                               ("unevaluatedProperties", False), ("$dynamicRef", "#a")):
            status, answer = self.ask(**of_schema({"type": "object", "properties": {
                "a": {"type": "object", keyword: value}}}))
            self.assertEqual(status, 400, answer)
            error = answer["error"]
            self.assertEqual((error["param"], error["code"]),
                             ("response_format", "unsupported_parameter"))
            self.assertIn(f'#/properties/a: "{keyword}" is not supported', error["message"])
        for fields, words in (
                ({"response_format": {"type": "json_schema"}}, "has no json_schema"),
                (of_schema({"type": "text"}), "#: type is \"text\""),
                (of_schema({"description": "a" * 66000}), "at most 65536"),
                (of_schema({"minItems": 99999, "items": {"type": "number"}}), "100000 steps"),
                (of_schema({"$ref": "#"}), "#: no text that ends fits it"),
                ({"ignore_eos": True, **of_schema({})}, "ignore_eos")):
            status, answer = self.ask(**fields)
            self.assertEqual(status, 400, answer)
            self.assertEqual(answer["error"]["param"], "response_format", answer)
            self.assertIn(words, answer["error"]["message"])


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-chat-"))
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--model", make_chat_model(pathlib.Path(directory))))

    def ask(self, **fields) -> tuple[int, dict]:
        status, _, body = self.instance.ask("POST", "/v1/chat/completions", {
            "messages": [USER], "max_tokens": 400, "seed": 5, **fields})
        return status, json.loads(body)

    def test_every_answer_is_valid(self) -> None:
        for name, schema in SCHEMAS.items():
            with self.subTest(name):
                status, answer = self.ask(temperature=1, n=2, **of_schema(schema))
                self.assertEqual(status, 200, answer)
                for choice in answer["choices"]:
                    self.assertEqual(choice["finish_reason"], "stop", choice)
                    value = json.loads(choice["message"]["content"])
                    self.assertEqual(problem_of(value, schema, schema), "")

    def test_a_call_that_must_come_comes(self) -> None:
        """Any of two tools, and one of them; whole and streamed, with the arguments of its
        parameters in their order."""
        parameters = {"say": {"type": "object", "properties": {"word": WORD, "again": {
            "type": "integer"}}, "required": ["word", "again"]},
            "paint": {"properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"]}}
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}}
                 for name, schema in parameters.items()]
        one = {"type": "function", "function": {"name": "say"}}
        # What it thinks first may be long.
        calm = {"chat_template_kwargs": {"enable_thinking": False}}
        for choice, names in (("required", set(parameters)), (one, {"say"})):
            status, answer = self.ask(tools=tools, tool_choice=choice, n=4, temperature=1,
                                      **calm)
            self.assertEqual(status, 200, answer)
            for given in answer["choices"]:
                self.assertEqual(given["finish_reason"], "tool_calls", given)
                self.assertIsNone(given["message"]["content"])
                call, = given["message"]["tool_calls"]
                name = call["function"]["name"]
                self.assertIn(name, names)
                value = json.loads(call["function"]["arguments"])
                self.assertEqual(problem_of(value, parameters[name], {}), "", value)
                self.assertEqual(list(value), list(parameters[name]["properties"]))
        wish = {"messages": [USER], "max_tokens": 400, "seed": 5, "tools": tools,
                "tool_choice": one, **calm}
        _, whole = self.ask(**wish)
        _, _, body = self.instance.ask("POST", "/v1/chat/completions", {**wish, "stream": True})
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events_of(body)[:-1]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        pieces = [call["function"]["arguments"] for call in calls]
        self.assertGreater(len(pieces), 2, "told while they come")
        self.assertEqual([{"name": calls[0]["function"]["name"], "arguments": "".join(pieces)}],
                         [call["function"]
                          for call in whole["choices"][0]["message"]["tool_calls"]])
        # Cut by max_tokens, in front of the name, too.
        for limit in range(1, 12):
            _, cut = self.ask(**{**wish, "max_tokens": limit})
            self.assertEqual(cut["choices"][0]["finish_reason"], "length")
            message = cut["choices"][0]["message"]
            self.assertFalse(message["content"], message)
            for call in message.get("tool_calls", []):
                self.assertEqual(call["function"]["name"], "say")
                self.assertTrue("".join(pieces).startswith(call["function"]["arguments"]), call)

    def test_refusals_of_calls_name_the_field(self) -> None:
        def tool(**function) -> list[dict]:
            return [{"type": "function", "function": {"name": "now", **function}}]
        other = {"type": "function", "function": {"name": "then"}}
        pattern = {"properties": {"a": {"pattern": "x"}}}
        for fields, param, words in (
                ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
                ({"tool_choice": other, "tools": tool()}, "tool_choice", "names 'then'"),
                ({"tool_choice": "any", "tools": tool()}, "tool_choice", "must be auto"),
                ({"tool_choice": "required", "tools": tool(parameters=pattern)}, "tools",
                 'the parameters of now are refused: json_schema: '
                 '#/properties/a: "pattern" is not supported'),
                ({"tool_choice": "required", "tools": tool(parameters={"type": "string"})},
                 "tools[0].function.parameters", "of an object"),
                ({"tool_choice": "required", "tools": tool(name="a b")}, "tools", "'a b'"),
                ({"tool_choice": "required", "tools": tool(), **of_schema({})},
                 "response_format", "beside tools")):
            status, answer = self.ask(**fields)
            self.assertEqual(status, 400, (fields, answer))
            self.assertEqual(answer["error"]["param"], param, answer)
            self.assertIn(words, answer["error"]["message"])

    def test_beside_tools_it_is_refused(self) -> None:
        tool = {"type": "function", "function": {"name": "now"}}
        status, answer = self.ask(tools=[tool], **of_schema({}))
        self.assertEqual(status, 400, answer)
        self.assertEqual(answer["error"]["param"], "response_format")
        status, answer = self.ask(tools=[tool], tool_choice="none",
                                  **of_schema(SCHEMAS["enum"]))
        self.assertEqual(status, 200, answer)


if __name__ == "__main__":
    unittest.main()
