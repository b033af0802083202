# SPDX-License-Identifier: Apache-2.0
"""The demo model as if it were trained for chats: with a template and the tokens of it."""

import json
import pathlib

DEMO = pathlib.Path(__file__).resolve().parents[3] / "demo_model"
# Words by which afdd chooses its ChatML with tools and a switch for thinking.
TEMPLATE = "{# <|im_start|> enable_thinking <tool_response> #}"
TOKENS = ("<|im_start|>", "<|im_end|>")


def make_chat_model(directory: pathlib.Path) -> pathlib.Path:
    """The model's directory. The two youngest tokens of the vocabulary become those of the
    template: nothing else is made of them."""
    for path in DEMO.iterdir():
        if path.name not in {"tokenizer.json", "tokenizer_config.json"}:
            (directory / path.name).symlink_to(path)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for token in TOKENS:
        youngest = max(vocabulary, key=vocabulary.get)
        token_id = vocabulary.pop(youngest)
        tokenizer["model"]["merges"].pop()
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][1], "id": token_id,
                                          "content": token})
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    config = json.loads((DEMO / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = TEMPLATE
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory
