"""What an Envoy does with routes, in the order that they are given."""

import dataclasses

import re2


@dataclasses.dataclass(frozen=True)
class Request:
    """A request, as far as routes look at it."""

    path: str
    method: str = "GET"
    host: str = "kf.example.com"
    headers: tuple[tuple[str, str], ...] = ()


def reached(routes, path, **given):
    """Name the application that serves a request, and the path that it sees."""
    found = first(routes, Request(path, **given))
    if found is None:
        return None
    route, entry, matched = found
    seen = path
    if entry.whole_path:
        seen = entry.whole_path
    elif entry.path:
        seen = entry.path + path[len(matched) :]
    return route.application, seen


def first(routes, request):
    """Return the first entry that matches, with its route and what matched."""
    for route in routes:
        for entry in route.entries:
            for uri in entry.uris:
                matched = _matched(uri, request.path)
                if matched is not None and _fits(route, request):
                    return route, entry, matched
    return None


def _matched(uri, path):
    if uri.how == "exact":
        return path if path == uri.value else None
    if uri.how == "prefix":
        return uri.value if path.startswith(uri.value) else None
    return path if re2.fullmatch(uri.value, path) else None


def _fits(route, request):
    return (
        route.method in ("", request.method)
        and set(route.headers) <= set(request.headers)
        and (not route.host or bool(re2.fullmatch(route.authority_pattern, request.host)))
    )
