"""Who is to be answered what under which options: written before anything was asked.

`0` is a connection that is ended.
"""

import re

from tests.e2e.security_objects import USERS

OFF = {"authorization": "off", "mtls": "inherit", "mtls-exceptions": ""}
SETTINGS = {
    "off": {},
    "related": {"authorization": "related"},
    "closed": {"authorization": "closed"},
    "strict": {"mtls": "strict"},
    "excepted": {"mtls": "strict", "mtls-exceptions": "store, db"},
    "related+": {"authorization": "related", "mtls": "strict", "mtls-exceptions": "store, db"},
    "closed+": {"authorization": "closed", "mtls": "strict"},
}
"""The columns of the table. Without an exception node ports come after strict: it refuses them."""
MEMBERS = {"gateway": ["gateway"], "stated": ["kfp-ui"], "member": ["db"], "profile": USERS}
BARE = ["outsider", "modeloperator", "scraper", "controller"]
"""Callers without a certificate; the API server's proxy is another, to which no claim is given."""
GROUPS = {**MEMBERS, "bare": [*BARE, "api-server"], "claiming": BARE}
TABLE = """
caller      target         off  related closed strict excepted related+ closed+
gateway     store          200  403     403    200    200      403      403
stated      store          200  200     200    200    200      200      200
member      store          200  403     403    200    200      403      403
profile     store          200  403     403    200    200      403      403
bare        store          200  403     403    0      200      403      0
node-port   store          200  403     403    0      200      403      0
gateway     kfp-ui         200  200     200    200    200      200      200
member      kfp-ui         200  403     403    200    200      403      403
profile     kfp-ui         200  403     403    200    200      403      403
bare        kfp-ui         200  403     403    0      0        0        0
gateway     db             200  200     403    200    200      200      403
stated      db             200  200     403    200    200      200      403
profile     db             200  200     403    200    200      200      403
bare        db             200  200     403    0      200      200      0
node-port   db             200  200     403    0      200      200      0
gateway     kfp-api        200  200     200    200    200      200      200
stated      kfp-api        200  200     200    200    200      200      200
member      kfp-api        200  200     200    200    200      200      200
profile     kfp-api        200  200     200    200    200      200      200
bare        kfp-api        200  200     200    0      0        0        0
gateway     kfp-api+claim  200  403     403    200    200      403      403
stated      kfp-api+claim  200  200     200    200    200      200      200
member      kfp-api+claim  200  403     403    200    200      403      403
profile     kfp-api+claim  200  403     403    200    200      403      403
claiming    kfp-api+claim  200  403     403    0      0        0        0
member      probed         200  200     403    200    200      200      403
outsider    probed         200  200     403    200    200      200      403
kubelet     probed         200  200     200    200    200      200      200
kubelet     store          200  200     200    200    200      200      200
kubelet     kfp-ui         200  200     200    200    200      200      200
kubelet     db             200  200     200    200    200      200      200
scraper     store:15020    200  200     200    200    200      200      200
api-server  hook           200  200     200    200    200      200      200
api-server  modeloperator  200  200     200    200    200      200      200
"""

NOBODY_KNOWS = (
    "callers outside of the mesh",
    "plain-text callers outside the model, for example Prometheus, cannot be detected",
)
OTHERS = ("pods of other namespaces",)
PREVIEWED = {
    **dict.fromkeys(("gateway", *USERS), OTHERS),
    **dict.fromkeys(("scraper", "controller", "modeloperator", "api-server"), NOBODY_KNOWS),
}
"""As whom the preview knows callers that it does not know by their names."""


def named(lines, who, target):
    """The line of a preview that says that somebody could no longer reach a target."""
    target = target.removesuffix("+claim")
    node_port = (*NOBODY_KNOWS[:1], f"Service {target}-node (NodePort)")
    known = {**PREVIEWED, "node-port": node_port}.get(who, (who,))
    said = re.compile("|".join(rf"(?<![\w-]){re.escape(each)}(?=[ ,]|-\w+-|$)" for each in known))
    for line in lines:
        is_about = f"call {target}" in line["seen"] or line["check"] == "mtls"
        if is_about and line["level"] != "fine" and said.search(line["seen"]):
            return line["seen"]
    return ""


def rows():
    """The expected answers of each setting, by caller and target."""
    head, *lines = (line.split() for line in TABLE.strip().splitlines())
    assert head[2:] == list(SETTINGS)
    found = {setting: {} for setting in SETTINGS}
    for group, target, *answers in lines:
        for setting, answer in zip(SETTINGS, answers, strict=True):
            for who in GROUPS.get(group, [group]):
                if who != target:
                    found[setting][who, target] = int(answer)
    return found


EXPECTED = rows()
