"""What our environment puts between us and a server at an address: its proxy, and the certificates to trust.

httpx2 obeys these variables, and its errors name neither them nor what they hold; a person has to know which to mend.
"""

import os
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import httpx2

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""How OpenSSL reads an answer in plain text."""


def proxy_at_fault(error: BaseException) -> str | None:
    """What to say of a proxy that could not be reached or has refused; None where none stood in the way."""
    if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return None
    if isinstance(error, httpx2.ConnectError) and _by_tls(error):
        return None  # the proxy was reached, and the certificate of what is behind it is not trusted
    try:
        url = error.request.url
    except RuntimeError:  # it was raised before there was a request
        return None
    proxies = getproxies_environment()
    scheme = url.scheme if proxies.get(url.scheme) else "all"
    if not proxies.get(scheme) or proxy_bypass(url.host):
        return None
    low = f"{scheme}_proxy"
    variable = low if os.environ.get(low) else low.upper()
    how = "refuses" if isinstance(error, httpx2.ProxyError) else "cannot be reached"
    return (
        f"the proxy that {variable} names ({_address(proxies[scheme])}) {how}: {str(error) or type(error).__name__}; "
        f"start it, correct or unset {variable}, or name {url.host} in NO_PROXY"
    )


def certificates_at_fault(error: OSError) -> str | None:
    """What to say of certificates that could not be read when a client was made; None where no variable names any."""
    variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
    if variable is None:
        return None
    what = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    named = f"{variable} names ({os.environ[variable]})"
    return f"the certificates that {named} cannot be read: {what}; correct or unset {variable}"


def tls_at_fault(error: BaseException) -> str | None:
    """What to say of a connection that could not be encrypted; None where that was not it."""
    cause = _tls_error(error)
    if cause is None:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = cause.verify_message
        return f"its certificate is not trusted: {why}; SSL_CERT_FILE names a file of certificates to trust"
    if cause.reason in _NO_TLS:
        return "it does not answer in TLS; is its address http:// and not https://?"
    return None


def _by_tls(error: BaseException) -> bool:
    return _tls_error(error) is not None


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # whoever raises an error's own cause makes a circle
        if isinstance(error, ssl.SSLError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _address(proxy: str) -> str:
    """Host and port, without the password that may stand before them."""
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}").netloc.rpartition("@")[2]
