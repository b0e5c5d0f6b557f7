"""A private authority and certificates of it, made with openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    """A private authority: `file` is its certificate (PEM)."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return certificate and key for a host name."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-days", 30, "-subj", f"/CN={name}"),
            *("-CA", self.file, "-CAkey", self.folder / "authority.key"),
            *("-keyout", key, "-out", certificate, "-addext", f"subjectAltName=DNS:{name}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
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
