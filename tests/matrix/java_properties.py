"""A cell in the words of Java's clients, which Spark's options have too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.matrix.cells import SCRAM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.matrix.cells import Cell

LOGIN_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "scram.ScramLoginModule"),
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def java_properties(cell: Cell) -> Iterable[str]:
    """Properties, as lines of a file have them."""
    yield f"bootstrap.servers={cell.address}"
    yield f"security.protocol={cell.protocol}"
    if cell.mechanism is not None:
        module = f"org.apache.kafka.common.security.{LOGIN_MODULES[cell.mechanism]}"
        options = f'username="{cell.user}" password="{cell.secret}"'
        if cell.is_token:
            options += ' tokenauth="true"'
        if cell.mechanism == "OAUTHBEARER":
            options = f'token="{cell.secret}"'
            yield "sasl.login.callback.handler.class=Matrix$Token"
        yield f"sasl.mechanism={cell.mechanism}"
        yield f"sasl.jaas.config={module} required {options};"
    if cell.ca is not None:
        yield "ssl.truststore.type=PEM"
        yield f"ssl.truststore.location={cell.ca}"
    if cell.certificate is not None:
        yield "ssl.keystore.type=PEM"
        yield f"ssl.keystore.location={cell.certificate.with_suffix('.pem')}"
