// SPDX-License-Identifier: Apache-2.0
//
// The npm client `openai`, unchanged, at a running afdd: node openai_client.mjs BASE_URL.
// Goal: what people have written against it works. Oracle: the client's own types, and its typed
// errors. Run by ../openai_test.py.
import assert from "node:assert/strict";
// Node's own fetch. The package's default, node-fetch 2.7, takes the end of every chunked response
// on a kept connection for a premature one with the Node 18.20.4 of Debian 12 (50 of 50 from a
// server that is Node's own, too).
import "openai/shims/web";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const prompt = "It was a fine morning, and the young lady";

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.deepEqual(models, ["demo_model"]);
const model = models[0];

const whole = await client.completions.create({ model, prompt, max_tokens: 12, seed: 3 });
assert.equal(whole.choices[0].finish_reason, "length");
assert.equal(whole.usage.completion_tokens, 12);

let text = "";
let usage = null;
const stream = await client.completions.create({
  model, prompt, max_tokens: 12, seed: 3, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  text += chunk.choices[0]?.text ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].text);
assert.equal(usage.total_tokens, whole.usage.total_tokens);

const messages = [{ role: "user", content: "Hello" }];
const tools = [{ type: "function", function: { name: "now", parameters: { type: "object" } } }];
const chat = await client.chat.completions.create({
  model, messages, tools, max_tokens: 12, seed: 3, logprobs: true, top_logprobs: 2,
});
assert.equal(chat.choices[0].message.role, "assistant");
assert.equal(chat.choices[0].logprobs.content[0].top_logprobs.length, 2);
const said = await client.beta.chat.completions
  .stream({ model, messages, tools, max_tokens: 12, seed: 3 }).finalContent();
assert.equal(said, chat.choices[0].message.content);
const structured = await client.chat.completions.create({
  model, messages, max_tokens: 100, seed: 3, response_format: {
    type: "json_schema", json_schema: { name: "answer", strict: true, schema: {
      type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"],
      additionalProperties: false } } },
});
assert.equal(typeof JSON.parse(structured.choices[0].message.content).ok, "boolean");
await assert.rejects(
  client.chat.completions.create({ model, messages, response_format: { type: "regex" } }),
  (error) => error instanceof OpenAI.BadRequestError && error.code === "unsupported_parameter" &&
    error.param === "response_format");

// Leaving the loop aborts the request; the connection is closed under it.
const endless = await client.completions.create({
  model, prompt, max_tokens: 900, ignore_eos: true, stream: true,
});
for await (const chunk of endless) {
  assert.ok(chunk.id.startsWith("cmpl-"));
  break;
}

await assert.rejects(
  client.completions.create({ model, prompt, temperature: 9 }),
  (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature" &&
    error.type === "invalid_request_error" && error.requestID !== null);
await assert.rejects(
  client.completions.create({ model: "another", prompt }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
await assert.rejects(
  client.completions.create({ model, prompt, max_tokens: 100000 }),
  (error) => error.code === "context_length_exceeded");
console.log("the openai client is content");
