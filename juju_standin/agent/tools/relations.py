"""The relation tools."""

from collections.abc import Sequence

import yaml

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from ..flags import Arguments, ToolError, parse, render  # noqa: TID252  the package is copied under other names


def relation_ids(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Relations of an endpoint; none before their `created` hooks are due."""
    arguments = parse(argv)
    endpoint = arguments.first() or (context.hook.endpoint if context.hook else "")
    if not endpoint:
        raise ToolError("no endpoint name specified", 2)
    found = [f"{r.endpoint}:{key}" for key, r in context.relations.items()]
    return render(sorted(key for key in found if key.split(":")[0] == endpoint), arguments)


def relation_list(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Remote units of a relation, or its application."""
    arguments = parse(argv, values="relation", switches="app")
    relation = chosen_relation(context, arguments)
    if arguments.has("app"):
        return render(context.relations[relation].application, arguments)
    return render(context.members(relation), arguments)


def relation_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Settings of a unit or an application in a relation."""
    arguments = parse(argv, values="relation", switches="app")
    relation = chosen_relation(context, arguments)
    key = arguments.first("-")
    entity = arguments.rest[1] if len(arguments.rest) > 1 else ""
    if not entity and context.hook and context.hook.relation == relation:
        hook = context.hook
        entity = hook.remote_application if arguments.has("app") else hook.remote_unit
    if not entity:
        raise ToolError("no unit or application specified", 2)
    if arguments.has("app"):
        entity = entity.rpartition("/")[0] or entity
    bag = context.settings(relation, entity)
    return render(bag if key == "-" else bag.get(key), arguments)


def relation_set(context: HookContext, argv: Sequence[str], stdin: str) -> str:
    """Keep settings for the commit; an empty value deletes a key."""
    arguments = parse(argv, values="relation file", switches="app")
    relation = chosen_relation(context, arguments)
    values: dict[str, str] = {}
    if arguments.flags.get("file") == "-":
        values = string_mapping(stdin)
    for word in arguments.rest:
        key, separator, value = word.partition("=")
        if not separator:
            raise ToolError(f'expected "key=value", got "{word}"', 2)
        values[key] = value
    context.write_settings(relation, values, application=arguments.has("app"))
    return ""


def chosen_relation(context: HookContext, arguments: Arguments) -> str:
    """The relation that `-r` names, or the hook's own."""
    given = arguments.flags.get("relation")
    if given is None:
        if context.hook and context.hook.relation:
            return context.hook.relation
        raise ToolError("no relation id specified", 2)
    endpoint, _, number = given.rpartition(":")
    known = context.relations.get(number)
    if known is None or (endpoint and endpoint != known.endpoint):
        raise ToolError(f'invalid value "{given}" for option -r: relation not found', 2)
    return number


def string_mapping(text: str) -> dict[str, str]:
    """Read the YAML mapping (of which JSON is a part) that ops sends on standard input.

    A scalar is taken as it is written, as Juju's goyaml does for a map of strings.
    """
    try:
        raw = yaml.load(text, Loader=yaml.BaseLoader) or {}
    except yaml.YAMLError as error:
        raise ToolError(f"cannot parse standard input: {error}") from error
    if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
        raise ToolError("cannot parse standard input: expected a mapping of strings")
    return raw


TOOLS = {
    "relation-ids": relation_ids,
    "relation-list": relation_list,
    "relation-get": relation_get,
    "relation-set": relation_set,
}
