"""The settings of the network: proxy and certificates, for all requests to other machines."""

from pathlib import Path
from typing import Final

from pydantic import AliasChoices, BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.configuration.types import CommaList, Place, ProxyAddress

NO_PROXY: Final = "none"


def _either(name: str) -> AliasChoices:
    """Return both spellings of a variable; as in other programs, the small one goes first."""
    return AliasChoices(name, name.upper())


class NetworkSettings(BaseModel):
    """How other machines are reached: the service, and the addresses of alerts and digests."""

    proxy: ProxyAddress | None = Field(
        default=None,
        description="The proxy of all requests to other machines: "
        "`http://[USER:PASSWORD@]HOST[:PORT]`, or `https`, `socks5` or `socks5h` in place of "
        "`http`; `none` for no proxy. Default: `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` of the "
        "environment. The embedded sandbox is reached without a proxy.",
    )
    proxy_file: Place | None = Field(
        default=None,
        description="A file that contains that address and nothing else, since the address may "
        "include a password.",
    )
    no_proxy: CommaList = Field(
        default=(),
        description="Hosts that are reached without a proxy, separated by commas: names (with "
        "their subdomains), addresses, networks such as `10.0.0.0/8`, or `*`. Default: `NO_PROXY` "
        "of the environment.",
    )
    ca_file: Place | None = Field(
        default=None,
        description="A PEM file with certificates of authorities that are trusted in addition to "
        "the public ones, for a service or a proxy with a private authority. `SSL_CERT_FILE` and "
        "`SSL_CERT_DIR` of the environment replace the public ones.",
    )


class NetworkEnvironment(BaseSettings):
    """The variables that most programs read. They are taken from the environment alone."""

    model_config = SettingsConfigDict(
        case_sensitive=True, extra="ignore", hide_input_in_errors=True, populate_by_name=False
    )

    http_proxy: SecretStr | None = Field(default=None, validation_alias=_either("http_proxy"))
    https_proxy: SecretStr | None = Field(default=None, validation_alias=_either("https_proxy"))
    all_proxy: SecretStr | None = Field(default=None, validation_alias=_either("all_proxy"))
    no_proxy: str = Field(default="", validation_alias=_either("no_proxy"))
    ssl_cert_file: str = Field(default="", validation_alias="SSL_CERT_FILE")
    ssl_cert_dir: str = Field(default="", validation_alias="SSL_CERT_DIR")

    def proxy(self, scheme: str) -> tuple[SecretStr, str] | None:
        """Return the proxy for a scheme, and its variable; None if there is none."""
        for name in (f"{scheme}_proxy", "all_proxy"):
            found: SecretStr | None = getattr(self, name)
            if found is not None and found.get_secret_value().strip():
                return found, name.upper()
        return None

    @property
    def exceptions(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.no_proxy.split(",") if part.strip())

    @property
    def certificates(self) -> tuple[Path | None, Path | None]:
        """Return the file and the folder of certificates, None if they are not set."""
        file, folder = self.ssl_cert_file.strip(), self.ssl_cert_dir.strip()
        return Path(file) if file else None, Path(folder) if folder else None
