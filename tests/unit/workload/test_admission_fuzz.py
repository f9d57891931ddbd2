"""A hundred thousand AdmissionReviews that went wrong somewhere on their way."""

import base64
import collections
import copy
import functools
import gc
import json
import random
import re
import tracemalloc

import pytest
from sidecar_lifecycle.shell.admission import review, settings

from tests.functional import admission_cases as table

COUNT = 100_000
DEEP = functools.reduce(lambda inner, _: [inner], range(150), "deep")
ODD = (
    *(DEEP, {"": DEEP}, 2**63, -(10**300), "\udfff\ud800", "\x1b[2J\u202e", "." * 5000),
    *(None, True, -1, 1e308, 10**40, "", "\x00\ud800", "é" * 300, [], {}, [[]], {"": {}}),
    *("a: [", "{", "---\n" * 50, {"name": "istio-proxy"}, "istio-proxy", "false"),
)


def reviews(dice):
    """Write the table's pods in reviews, each broken in one way or another."""
    kinds = {"model", "profiles", "labelled"}
    while True:
        case = dice.choice(table.CASES)
        document = {
            "apiVersion": review.API_VERSION,
            "kind": "AdmissionReview",
            "request": {
                "uid": str(dice.random()),
                "operation": "CREATE",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": case.pod("m"),
            },
        }
        document = json.loads(json.dumps(document))
        for _ in range(dice.randrange(4)):
            whole = dice.random() < 0.1
            break_value(document if whole else document["request"]["object"], dice)
            if whole:
                break
        body = break_bytes(bytearray(json.dumps(document).encode()), dice)
        yield body, case.settings, case.namespace if case.namespace in kinds else "model"


def break_value(value, dice):
    """Drop, replace or repeat something somewhere in a document."""
    while isinstance(value, dict | list) and value:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        if dice.random() < 0.3 or not isinstance(value[key], dict | list) or not value[key]:
            match dice.randrange(3):
                case 0:
                    del value[key]
                case 1:
                    value[key] = copy.deepcopy(dice.choice(ODD))
                case _:
                    value[key] = [value[key]] * dice.randrange(3)
            return
        value = value[key]


def break_bytes(body, dice):
    """Leave two thirds as they are; flip, cut, repeat or nest the rest."""
    match dice.randrange(16):
        case 0:
            for _ in range(dice.randrange(1, 8)):
                body[dice.randrange(len(body))] = dice.randrange(256)
        case 1:
            del body[dice.randrange(len(body)) :]
        case 2:
            start = dice.randrange(len(body))
            body[start:start] = body[start : start + dice.randrange(400)]
        case 3:
            opening = dice.choice([b"[", b'{"a":', b'{"metadata":'])
            body[body.find(b'"object": ') + 10 : -2] = opening * rarely(20_000, dice)
        case 4:
            replace_text(body, b"1" * rarely(50_000, dice), dice)
        case 5:
            replace_text(body, dice.choice(SURROGATES), dice)
        case 6:
            replace_text(body, b'"' + bytes(dice.randrange(256) for _ in range(9)) + b'"', dice)
        case 7:
            many = dice.choice([b"{},", b"null,", b'{"name":"istio-proxy"},'])
            replace_text(body, b"[" + many * rarely(25_000, dice) + b"{}]", dice)
    return bytes(body)


SURROGATES = (rb'"\ud800"', rb'"\udc00\ud800"', rb'{"\udbff": 1}', b'"\xed\xa0\x80"')


def rarely(many, dice):
    """Return a large number now and then: a hundred thousand documents take their time."""
    return many if dice.random() < 0.01 else dice.choice([10, 1200])


def replace_text(body, by, dice):
    """Put bytes in the place of one of the texts of a document, be it a key."""
    found = dice.choice(list(re.finditer(rb'"[^"\\]*"', body)))
    body[found.start() : found.end()] = by


@pytest.mark.parametrize("seed", range(10))
def test_a_few_reviews_neither_crash_nor_refuse_a_pod(seed):
    known = wanted()
    broken = reviews(random.Random(f"few {seed}"))
    for _ in range(200):
        body, name, kind = next(broken)
        answered(body, review.answer(body, known[name], kind))


def wanted():
    return {
        name: settings.load(json.dumps({"application": "a", "model": "m", **values}))
        for name, values in table.SETTINGS.items()
    }


def answered(body, answer):
    assert answer.status in (200, 400)
    assert len(answer.body) < 2 * review.LARGEST_PATCH
    if answer.status == 200:
        check(body, json.loads(answer.body)["response"])


@pytest.mark.long
def test_no_review_crashes_leaks_or_refuses_a_pod():
    known = wanted()
    outcomes = collections.Counter()
    broken = reviews(random.Random(1))
    tracemalloc.start()
    for number in range(COUNT):
        body, name, kind = next(broken)
        answer = review.answer(body, known[name], kind)
        outcomes[answer.outcome] += 1
        answered(body, answer)
        if number == COUNT // 10:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    print(outcomes, f"{grown} bytes more than after {COUNT // 10}")
    assert grown < 200_000
    assert min(outcomes[o] for o in ("patched", "unchanged", "not-understood", "malformed")) > 500


def check(body, response):
    """See that a pod is allowed, and that its patch can be applied and does what it should."""
    assert response["allowed"] is True
    assert len(response.get("warnings", [])) <= 2
    if "patch" in response:
        patch = json.loads(base64.b64decode(response["patch"]))
        # What is not read may be no text at all.
        pod = json.loads(body.decode(errors="replace"), parse_int=float)["request"]["object"]
        patched = table.patched(pod, patch)
        assert patched != pod
        paths = ("/metadata/annotations", "/metadata/labels", "/spec/")
        assert all(one["path"].startswith(paths) for one in patch)
