# SPDX-License-Identifier: Apache-2.0
"""Whether a JSON value is valid against a JSON Schema, by looking at the value. Knows what afdd
knows of JSON Schema (docs/serving.md) and no more: an unknown keyword is an error of the test."""

ANNOTATIONS = {"title", "description", "default", "$defs", "format"}
TYPES = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def equal(one: object, other: object) -> bool:
    """1 is no true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def problem_of(value: object, schema: dict | bool, root: dict, where: str = "#") -> str:
    """What is wrong; empty: nothing."""
    if schema is True:
        return ""
    known = ANNOTATIONS | {"$ref", "type", "enum", "const", "anyOf", "properties", "required",
                           "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
                           "minLength", "maxLength"}
    assert schema is not False and set(schema) <= known, schema
    if "$ref" in schema:
        at = root
        for name in schema["$ref"].split("/")[1:]:
            at = at[name]
        return problem_of(value, at, root, where)
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        return f"{where}: {value!r} is none of {schema['enum']}"
    if "const" in schema and not equal(value, schema["const"]):
        return f"{where}: {value!r} is not {schema['const']!r}"
    if "anyOf" in schema and all(problem_of(value, one, root) for one in schema["anyOf"]):
        return f"{where}: {value!r} is none of the choices"
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(TYPES[one](value) for one in types):
        return f"{where}: {value!r} is no {types}"
    if isinstance(value, str):
        return of_length(len(value), schema, "Length", where)
    if isinstance(value, list):
        return of_length(len(value), schema, "Items", where) or of_items(value, schema, root, where)
    return of_members(value, schema, root, where) if isinstance(value, dict) else ""


def of_length(length: int, schema: dict, unit: str, where: str) -> str:
    least, most = schema.get("min" + unit, 0), schema.get("max" + unit, length)
    return "" if least <= length <= most else f"{where}: {length} are not {least} to {most}"


def of_items(value: list, schema: dict, root: dict, where: str) -> str:
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    for i, item in enumerate(value):
        if i >= len(first) and rest is False:
            return f"{where}: there are more than {len(first)}"
        problem = problem_of(item, first[i] if i < len(first) else rest, root, f"{where}/{i}")
        if problem:
            return problem
    return ""


def of_members(value: dict, schema: dict, root: dict, where: str) -> str:
    members = schema.get("properties", {})
    missing = set(schema.get("required", [])) - set(value)
    if missing:
        return f"{where}: without {missing}"
    for name, member in value.items():
        rest = schema.get("additionalProperties", "properties" not in schema)
        if name not in members and rest is False:
            return f"{where}: {name!r} is none of its members"
        problem = problem_of(member, members.get(name, rest), root, f"{where}/{name}")
        if problem:
            return problem
    return ""
