"""A private authority and certificates of it, made with openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


_CONFIGURATION = """[ca]
default_ca = own
[own]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/authority.pem
private_key = {folder}/authority.key
default_md = sha256
policy = any
[any]
commonName = supplied
"""


@dataclass(frozen=True)
class Authority:
    """A private authority: `file` is its certificate (PEM)."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str, *, is_expired: bool = False) -> tuple[Path, Path]:
        """Return certificate and key for a host name."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName=DNS:{name}\nbasicConstraints=CA:FALSE\n"
            "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n"
            "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        (self.folder / "index.txt").write_text("")
        (self.folder / "serial").write_text(f"{len(list(self.folder.iterdir())):04x}\n")
        (self.folder / "ca.cnf").write_text(_CONFIGURATION.format(folder=self.folder))
        period = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
        _openssl(
            *("ca", "-batch", "-notext", "-config", self.folder / "ca.cnf", "-in", request),
            *("-out", certificate, "-extfile", extensions),
            *(period if is_expired else ("-days", 30)),
        )
        return certificate, key


def new_authority(folder: Path) -> Authority:
    """Return an authority in a folder; skips the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, for a certificate")
    _openssl(
        *("req", "-x509", *_KEY, "-days", 30, "-subj", "/CN=A private authority"),
        *("-keyout", folder / "authority.key", "-out", folder / "authority.pem"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    return Authority(folder)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
