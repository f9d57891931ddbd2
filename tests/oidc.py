"""A real oauth2-proxy, which authenticates people."""

import json
import secrets

from testbed import programs

SESSION = "_oauth2_proxy"
PREFIX = "/oauth2"


def command(folder, port, *flags, **provider):
    """Write the configuration of an oauth2-proxy, and return the command line that starts it.

    It answers 200 and names the user where somebody is authenticated, whatever is asked for.
    """
    about = {"id": "provider", "provider": "oidc", "clientID": "kubeflow"}
    user = {"name": "kubeflow-userid", "values": [{"claimSource": {"claim": "email"}}]}
    config = {
        "server": {"bindAddress": f"0.0.0.0:{port}"},
        "upstreamConfig": {"upstreams": [{"id": "all", "path": "/", "static": True}]},
        "injectResponseHeaders": [user],
        "providers": [{**about, "clientSecret": "known-to-both", **provider}],
    }
    file = folder / "oauth2-proxy.json"
    file.write_text(json.dumps(config))
    program = programs.ensure(["oauth2-proxy"])["oauth2-proxy"] / "bin" / "oauth2-proxy"
    return [
        *(str(program), f"--alpha-config={file}", f"--cookie-secret={secrets.token_hex(16)}"),
        *("--reverse-proxy", "--skip-provider-button", "--email-domain=*", *flags),
    ]


def of_issuer(issuer, **more):
    """The provider's configuration."""
    claims = {"emailClaim": "email", "userIDClaim": "email", "audienceClaims": ["aud"]}
    return {"oidcConfig": {"issuerURL": issuer, **claims, **more}}
