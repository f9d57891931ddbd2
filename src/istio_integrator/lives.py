"""From when until when a certificate is valid, read without the library for certificates.

Its import costs a hook some 30 to 60 ms, more than all else that is done for the metrics of a
certificate that somebody else has made. What is read is the beginning of RFC 5280's
TBSCertificate: version, serial number, algorithm, issuer, validity.
"""

from __future__ import annotations

import binascii
import datetime
import re

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s(.*?)\s-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _INTEGER = 0x30, 0xA0, 0x02
_FORMATS = {0x17: "%y%m%d%H%M%S%z", 0x18: "%Y%m%d%H%M%S%z"}
"""Of UTCTime and GeneralizedTime, as certificates have them."""
_LONGEST = 64 << 10
"""Characters of a certificate that are looked at."""


def life(certificate: str) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Read from when until when the first certificate of a PEM is valid; None where it is none."""
    found = _PEM.search(certificate[:_LONGEST])
    if found is None:
        return None
    try:
        whole, _ = _taken(binascii.a2b_base64(found[1]), _SEQUENCE)
        rest, _ = _taken(whole, _SEQUENCE)
        if rest[0] == _VERSION:
            _, rest = _taken(rest, _VERSION)
        for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):
            _, rest = _taken(rest, tag)
        validity, _ = _taken(rest, _SEQUENCE)
        since, validity = _time(validity)
        until, _ = _time(validity)
    except (IndexError, ValueError):
        return None
    return since, until


def _taken(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Take the content of the first value, which has a tag; returns it and what comes after it."""
    if data[0] != tag:
        raise ValueError
    begin, length = 2, data[1]
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[2:begin], "big")
    end = begin + length
    if end > len(data):
        raise ValueError
    return data[begin:end], data[end:]


def _time(data: bytes) -> tuple[datetime.datetime, bytes]:
    if data[0] not in _FORMATS:
        raise ValueError
    text, rest = _taken(data, data[0])
    moment = datetime.datetime.strptime(text.decode(), _FORMATS[data[0]])  # noqa: DTZ007 - it has %z
    if data[0] == 0x17 and moment.year >= 2050:
        # The two digits of UTCTime are of 1950 to 2049, Python's of 1969 to 2068.
        moment = moment.replace(year=moment.year - 100)
    return moment, rest
