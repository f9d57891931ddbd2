"""An authority that answers on the relation `certificates`."""

import datetime
import json

from charmlibs.interfaces import tls_certificates
from cryptography import x509

LIFE = datetime.timedelta(days=90)


def answer(requests, life=LIFE):
    """Sign the one request of a bag; what the authority says, and the certificate's number."""
    (asking,) = json.loads(requests)
    request = asking["certificate_signing_request"]
    key = tls_certificates.PrivateKey.generate()
    name = tls_certificates.CertificateRequestAttributes(common_name="authority")
    ca = tls_certificates.Certificate.generate_self_signed_ca(name, key, LIFE)
    signed = tls_certificates.CertificateSigningRequest.from_string(request).sign(ca, key, life)
    entry = {
        "certificate": str(signed),
        "certificate_signing_request": request,
        "ca": str(ca),
        "chain": [str(signed), str(ca)],
    }
    number = x509.load_pem_x509_certificate(str(signed).encode()).serial_number
    return {"certificates": json.dumps([entry])}, number
