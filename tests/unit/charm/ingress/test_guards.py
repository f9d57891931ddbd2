"""The EnvoyFilter that authenticates requests, as far as no gateway is needed to see it."""

import re

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress_world import HOST, LABELS, OWN, auth, route

HTTPS = {"gateway": "kf/kubeflow-gateway"}


PARTS = "path_separated_prefix"


def free(*paths, exact=()):
    matches = [wishes.match(each, "Exact") for each in exact]
    wish = wishes.route(*(wishes.match(each) for each in paths), *matches)
    return wishes.asks("dex", wish, endpoint=wishes.OPEN)


def asked(*paths):
    return wishes.asks("kfp", wishes.route(*(wishes.match(each) for each in paths)))


def patches(guard, kind):
    return [each for each in guard["spec"]["configPatches"] if each["applyTo"] == kind]


def places(guard, operation):
    found = patches(guard, "HTTP_ROUTE")
    return [
        each["match"].get("routeConfiguration")
        for each in found
        if each["patch"]["operation"] == operation and "match" in each["patch"]["value"]
    ]


def entries(guard, place=HTTPS):
    """The entries without a backend: the path that they match, and the filters they enable."""
    found = []
    for each in patches(guard, "HTTP_ROUTE"):
        value = each["patch"]["value"]
        if "direct_response" in value and each["match"]["routeConfiguration"] == place:
            enabled = value.get("typed_per_filter_config", {})
            scripts = {
                name.rpartition(".")[2]: one["config"].get("name", one["config"])
                for name, one in enabled.items()
            }
            ((how, path),) = value["match"].items()
            found.append((how, path, scripts))
            # By this the script knows the requests that only the route / matches.
            tag = {"filter_metadata": {"envoy.filters.http.lua": {"ask": True}}}
            assert value.get("metadata") == (tag if value["name"].endswith(".ask") else None)
    return found


def test_named_gateway_is_guarded_at_our_hosts_and_our_own_everywhere(world):
    world.related = [route(), auth()]
    world.config = {"hosts": "a.example,*.b.example"}
    world.hook()
    want = [HTTPS, {"vhost": {"name": "a.example:80"}}, {"vhost": {"name": "*.b.example:80"}}]
    assert places(world.guard(), "MERGE") == places(world.guard(), "ADD") == want
    filters = [each["patch"]["value"]["name"] for each in patches(world.guard(), "HTTP_FILTER")]
    ports = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")["spec"]
    by_name = [{"vhost": {"name": f"{each}:8080"}} for each in ("a.example", "*.b.example")]
    for name, port, want in (("https-a", 8443, [HTTPS]), ("http", 8080, by_name)):
        ports["ports"] = [{"name": name, "port": port}]
        world.hook()
        assert places(world.guard(), "MERGE") == places(world.guard(), "ADD") == want
    # By its name the workload knows the filter of these hosts.
    named = [each["patch"]["value"]["name"] for each in patches(world.guard(), "HTTP_FILTER")]
    assert [one.rpartition(".")[2] for one in {*filters} - {*named}] == ["guard"]
    world.config |= OWN
    world.hook()
    assert places(world.guard("kf"), "MERGE") == [{}]
    assert places(world.guard("kf"), "ADD") == [{}]


AUTHZ = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"
ASK = {"strip": "strip", "authorize": {"@type": AUTHZ, "check_settings": {}}, "mark": "ask"}
PASS = {"strip": "strip", "mark": "pass"}


def test_entries_are_for_routes_without_authentication_and_for_others_within_them(world):
    world.related = [
        free("/dex/", "/login", exact=["/free"]),
        asked("/dex/admin", "/dexterity", "/x", "/"),
        route("older", prefix="/dex/old-admin"),
        auth(),
    ]
    world.hook()
    want = [("path", "/free", PASS), ("prefix", "/dex/old-admin", ASK)]
    want += [(PARTS, *each) for each in (("/dex/admin", ASK), ("/login", PASS), ("/dex", PASS))]
    assert entries(world.guard()) == [*want, ("prefix", "/", ASK)]


def test_routes_match_the_values_that_the_filter_writes_first_and_then_for_the_root(world):
    world.related = [free("/dex"), asked("/", "/kfp"), route("older"), auth()]
    world.hook()
    matches = [each for entry in world.http() for each in entry["match"] if "headers" in each]
    (header,) = {name for each in matches for name in each["headers"]}
    matched = {each["uri"].get("prefix"): each["headers"][header]["exact"] for each in matches}
    mark = patches(world.guard(), "HTTP_FILTER")[-1]["patch"]["value"]["typed_config"]
    written = {
        script: re.findall(rf'headers:replace\("{header}", "(.+?)"\)', source["inline_string"])
        for script, source in mark["source_codes"].items()
    }
    assert written == {"ask": [matched["/kfp/"], matched["/"]], "pass": [matched["/dex/"]]}
    assert matched["/older"] == matched["/kfp/"]
    # The scripts know these two routes by their tags.
    tagged = {
        each["match"]["routeConfiguration"]["vhost"]["route"]["name"]: each["patch"]["value"]
        for each in patches(world.guard(), "HTTP_ROUTE")[:2]
    }
    first, *_, last = (each["name"] for each in world.http() if "mesh-2" not in each["name"])
    tags = {first: "free", last: "ask"}
    assert tagged == {
        name: {"metadata": {"filter_metadata": {"envoy.filters.http.lua": {tag: True}}}}
        for name, tag in tags.items()
    }
    # Every route matches what both scripts note, and its backend does not get the header.
    merged = patches(world.guard(), "HTTP_ROUTE")[2]["patch"]["value"]
    assert merged["request_headers_to_remove"] == [header]
    (proof,) = merged["match"]["dynamic_metadata"]
    noted = rf'metadata:set\("{proof["filter"]}", "seen", "(.+?)"\)'
    (seen,) = {re.search(noted, one["inline_string"])[1] for one in mark["source_codes"].values()}
    assert proof["path"] == [{"key": "seen"}]
    assert proof["value"] == {"string_match": {"exact": seen}}
    assert len({*matched.values()}) == 3


@cases(
    ("related", "options", "filters", "ask"),
    service=([auth()], {}, ["strip", "guard", "authorize", "mark"], ASK),
    no_authentication=(
        [],
        {"require_authentication": False},
        ["strip", "guard", "mark"],
        {"strip": "strip", "mark": "ask"},
    ),
    closed=([], {}, ["guard"], {}),
)
def test_closed_guard_marks_nothing(world, related, options, filters, ask):
    world.related = [free("/dex"), asked("/kfp"), *related]
    world.config = options
    world.hook()
    values = [each["patch"]["value"] for each in patches(world.guard(), "HTTP_FILTER")]
    assert [value["name"].rpartition(".")[2] for value in values] == filters
    free_script = PASS if filters[1:] else {}
    assert entries(world.guard()) == [(PARTS, "/dex", free_script), ("prefix", "/", ask)]
    written = patches(world.guard(), "HTTP_ROUTE")
    answers = [each["patch"]["value"].get("direct_response") for each in written]
    status = 404 if filters[1:] else 403
    assert [each for each in answers if each] == [{"status": status}] * 4
    before = world.guard()
    world.hook()
    assert world.guard() == before


def test_guard_and_strip_are_first_in_the_filter_chain_and_the_mark_is_before_the_router(world):
    world.related = [route(), auth()]
    world.hook()
    written = world.guard()
    assert written["spec"]["priority"] == 10
    assert written["spec"]["workloadSelector"] == {"labels": LABELS}
    annotations = written["metadata"]["annotations"]
    assert {key: annotations[key] for key in annotations if key != names.APPLIED_HASH} == {
        names.HOSTS: HOST,
        "envoyfilter.istio.io/referenced-services": "oidc.kf.svc.cluster.local",
        "galley.istio.io/analyze-suppress": "IST0133,IST0153",
    }
    assert {each["match"]["context"] for each in written["spec"]["configPatches"]} == {"GATEWAY"}
    found = []
    for each in patches(written, "HTTP_FILTER"):
        chain, added = each["match"]["listener"]["filterChain"]["filter"], each["patch"]["value"]
        assert chain["name"] == "envoy.filters.network.http_connection_manager"
        role, is_disabled = added["name"].rpartition(".")[2], added.get("disabled", False)
        found.append((role, each["patch"]["operation"], chain.get("subFilter"), is_disabled))
    first = "INSERT_FIRST", None
    before = "INSERT_BEFORE", {"name": "envoy.filters.http.router"}
    assert found == [
        ("strip", *first, True),
        ("guard", *first, False),
        ("authorize", *before, True),
        ("mark", *before, True),
    ]


def leaving(world, *headers):
    """The identity headers of a request that leaves the gateway, as Envoy writes them."""
    world.related = [route(), auth(**{"allowed-response-headers": [*headers]})]
    world.hook()
    (found,) = patches(world.guard(), "ROUTE_CONFIGURATION")
    added = found["patch"]["value"]["request_headers_to_add"]
    assert all(each["append_action"] == "OVERWRITE_IF_EXISTS" for each in added)
    assert all(each["keep_empty_value"] for each in added)
    return {each["header"]["key"]: each["header"]["value"] for each in added}


KNOWN = {"kubeflow-userid", "kubeflow_userid", "kubeflow-groups", "kubeflow_groups"}


@cases(
    ("header", "count"),
    four_dashes=("x-goog-authenticated-user-email", 16),
    five_dashes=("x-goog-authenticated-user-email-2", 2),
)
def test_name_of_many_dashes_costs_two_spellings(world, header, count):
    found = leaving(world, header).keys() - KNOWN
    assert len(found) == count
    assert {name.replace("_", "-") for name in found} == {header}


def test_no_name_of_a_header_ends_the_expression_that_it_is_in(world):
    name = "x!#$%&'*+.^_`|~0-9"
    found = leaving(world, name, "kubeflow-userid")
    for value in found.values():
        assert value.count("%") == 2
        assert value.count("'") == 12
    assert re.sub("x-[0-9a-f]{32}", "MARK", found["kubeflow-userid"]) == (
        "%CEL('MARK' in metadata.filter_metadata "
        "? metadata.filter_metadata['envoy.filters.http.ext_authz']['kubeflow-userid'] "
        ": xds.cluster_name.endsWith('.kf.svc.cluster.local') "
        "? '' : request.headers['kubeflow-userid'])%"
    )


def test_old_proxies_are_not_given_what_they_would_refuse_their_routes_for(world):
    world.related = [route(), auth()]
    world.hook()
    *_, last = world.guard()["spec"]["configPatches"]
    version = re.compile(last["match"]["proxy"]["proxyVersion"])
    taken = ["1.26.0", "1.31.1", "1.31.1-distroless", "1.40.0", "2.0.1"]
    refused = ["1.25.9", "1.9.0", "1.2.26", "unknown", ""]
    assert [one for one in (*taken, *refused) if version.match(one)] == taken


def test_header_that_the_service_is_shown_is_one_that_clients_may_set(world):
    headers = ["kubeflow-userid", "x_user", "x-auth-token", "authorization", "host"]
    headers.append("content-length")
    shown = {"allowed-request-headers": ["x-auth-token"], "allowed-response-headers": headers}
    without = [], {"require_authentication": False}, []
    for related, options, own in (([auth(**shown)], {}, ["x-user"]), without):
        world.related, world.config = [route(), *related], options
        world.hook()
        strip = patches(world.guard(), "HTTP_FILTER")[0]["patch"]["value"]["typed_config"]
        script = strip["source_codes"]["strip"]["inline_string"]
        stripped = re.findall(r"identity\[ \[\[(.+?)\]\] \]", script)
        assert stripped == ["kubeflow-userid", *own, "kubeflow-groups"]
