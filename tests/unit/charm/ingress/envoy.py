"""What an Envoy does with routes, in the order that they are given."""


def reached(routes, path):
    """Name the application that serves a request, and the path that it sees."""
    found = first(routes, path)
    if found is None:
        return None
    route, entry, matched = found
    return route.request.application, entry.path + path[len(matched) :] if entry.path else path


def first(routes, path):
    """Return the first entry that matches, with its route and what matched."""
    for route in routes:
        for entry in route.entries:
            for uri in entry.uris:
                is_exact = uri.how == "exact"
                if path == uri.value if is_exact else path.startswith(uri.value):
                    return route, entry, uri.value
    return None
