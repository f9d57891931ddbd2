import base64
import json
from pathlib import Path

from cryptography import x509
from cryptography.x509 import verification

from testbed import certificates


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_server_certificate_is_valid_for_its_names_and_addresses(tmp_path: Path):
    authority = certificates.Authority(tmp_path)
    pair = authority.server("apiserver", ["kubernetes.default.svc"], ["127.0.0.1"])
    store = verification.Store([load(authority.pair.certificate)])
    builder = verification.PolicyBuilder().store(store)
    verifier = builder.build_server_verifier(x509.DNSName("kubernetes.default.svc"))
    assert verifier.verify(load(pair.certificate), [])


def test_authority_of_a_directory_outlives_the_process_that_made_it(tmp_path: Path):
    first = load(certificates.Authority(tmp_path).pair.certificate)
    again = certificates.Authority(tmp_path)
    assert load(again.pair.certificate) == first
    load(again.server("late", ["late.example"], []).certificate).verify_directly_issued_by(first)


def test_client_certificate_carries_user_and_group(tmp_path: Path):
    pair = certificates.Authority(tmp_path).client("admin", "alice", "system:masters")
    subject = load(pair.certificate).subject.rfc4514_string()
    assert "CN=alice" in subject
    assert "O=system:masters" in subject


def test_keys_are_readable_by_their_owner_only(tmp_path: Path):
    authority = certificates.Authority(tmp_path)
    for key in (authority.pair.key, authority.signing_key("tokens").key):
        assert key.stat().st_mode & 0o777 == 0o600


def test_kubeconfig_holds_all_it_needs(tmp_path: Path):
    authority = certificates.Authority(tmp_path)
    pair = authority.client("admin", "admin")
    text = certificates.kubeconfig("https://127.0.0.1:1", authority.pair.certificate, pair)
    (user,) = json.loads(text)["users"]
    key = base64.b64decode(user["user"]["client-key-data"])
    assert key == pair.key.read_bytes()
